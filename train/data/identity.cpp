#include "train/data/identity.h"

#include <algorithm>
#include <string_view>

#include "core/parallel.h"
#include "core/printable.h"
#include "train/data/files/encoded_images.h"
#include "train/data/files/image_contents.h"
#include "train/io/file.h"
#include "train/io/hash.h"
#include "train/io/look.h"
#include "train/io/safetensors.h"

namespace ringtape {
namespace {

Tensor on_host(const Tensor& x) { return x.device().type == DeviceType::cpu ? x : x.copy_to(Device{}); }

// The checksum of the images' checksums, which several threads compute.
void add_images(Crc32& crc, const Tensor& images) {
  const Tensor here = on_host(images);
  const auto bytes = here.span<uint8_t>();
  const size_t each = images.dim(0) > 0 ? bytes.size() / size_t(images.dim(0)) : 0;
  std::vector<uint32_t> own(size_t(images.dim(0)));
  parallel_for(images.dim(0), 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) own[size_t(i)] = Crc32().add(bytes.data() + size_t(i) * each, each).value();
  });
  crc.add(own.data(), own.size() * sizeof own[0]);
}

std::string lines_of_files(std::string_view split, const Dataset& set) {
  std::string out;
  for (int64_t i = 0; set.encoded && i < set.encoded->size(); ++i)
    out += concat(split, '\t', printable(set.encoded->name(i)), '\t', set.encoded->bytes(i), '\n');
  return out;
}

// A line of a list: "train\tcat/1.jpg\t123".
struct ListLine {
  std::string_view key, bytes;  // "train\tcat/1.jpg\t"
  explicit ListLine(std::string_view line)
      : key(line.substr(0, line.rfind('\t') + 1)), bytes(line.substr(key.size())) {}
  std::string name() const {
    std::string out(key.substr(0, key.empty() ? 0 : key.size() - 1));
    std::replace(out.begin(), out.end(), '\t', '/');
    return out;
  }
};

constexpr int64_t kNotRead = -1;  // in a file of checksums

// Of each split whose images are followed, with its name.
template <class F> void each_contents(const Splits& data, F&& f) {
  if (data.train.contents) f("train", data.train);
  if (data.test.contents) f("test", data.test);
  if (data.val && data.val->contents) f("val", *data.val);
}

std::string_view first_line_of(std::string_view list) { return list.substr(0, list.find('\n')); }

}  // namespace

std::string DataIdentity::str() const {
  return concat(with_commas(train), " training and ", with_commas(test), " test images, CRC-32 of their labels ",
                labels, ", of their pixels ", pixels);
}

DataIdentity identity_of(const Splits& data) {
  Crc32 labels, pixels;
  data.each([&](const Dataset& set) {
    const Tensor here = on_host(set.labels);
    const auto all = here.span<int64_t>();
    labels.add(all.data(), all.size_bytes());
    if (set.is_encoded() || set.cache) {
      const std::string files = lines_of_files("", set);
      pixels.add(files);
    } else {
      add_images(pixels, set.images);
    }
  });
  return {data.train.size(), data.test.size(), labels.str(), pixels.str()};
}

std::string list_of_files(const Splits& data) {
  std::string out = concat(lines_of_files("train", data.train), lines_of_files("test", data.test),
                           data.val ? lines_of_files("val", *data.val) : "");
  for (const DamagedImage& image : data.damaged)
    out += concat("damaged ", image.split, '\t', printable(image.name), '\t', image.bytes, '\n');
  return out;
}

std::string difference_of(const std::string& before, const std::string& now) {
  const auto differs = std::mismatch(before.begin(), before.end(), now.begin(), now.end());
  if (differs.first == before.end() && differs.second == now.end()) return "";
  const auto line_at = [](const std::string& list, std::string::const_iterator place) {
    const auto at = size_t(place - list.begin());
    const size_t begin = at == 0 ? 0 : list.rfind('\n', at - 1) + 1;
    return first_line_of(std::string_view(list).substr(begin));
  };
  const ListLine then(line_at(before, differs.first)), here(line_at(now, differs.second));
  if (then.key == here.key) return concat(then.name(), ": has ", here.bytes, " bytes, had ", then.bytes);
  const bool gone = !then.key.empty() && !now.starts_with(then.key) && now.find(concat('\n', then.key)) == now.npos;
  return gone ? concat(then.name(), ": is not there any more") : concat(here.name(), ": was not there");
}

void write_files(const Splits& data, const std::string& path) {
  if (const std::string list = list_of_files(data); !list.empty()) write_file(path, list);
}

void check_files(const Splits& data, const std::string& path) {
  if (!is_there(path)) return;
  const std::string difference = difference_of(read_file(path), list_of_files(data));
  RT_CHECK_AS(UsageError, difference.empty(), path, ": ", data.train.source,
              " has other files than when the run began: ", difference,
              "; bring them back, choose another --run, or remove this list if it has been changed itself");
}

int64_t known_contents(const Splits& data) {
  int64_t out = 0;
  data.each([&](const Dataset& set) { out += set.contents ? set.contents->known() : 0; });
  return out;
}

void write_contents(const Splits& data, const std::string& path) {
  std::vector<NamedTensor> tensors;
  each_contents(data, [&](const char* split, const Dataset& set) {
    std::vector<int64_t> sums;
    for (int64_t i = 0; i < set.size(); ++i) {
      const auto sum = set.contents->of(i);
      sums.push_back(sum ? int64_t{*sum} : kNotRead);
    }
    tensors.push_back({split, from_host(sums, {set.size()})});
  });
  write_safetensors(path, tensors, {{"format", "pt"}});
}

void check_contents(const Splits& data, const std::string& path) {
  if (!is_there(path)) return;
  Safetensors then;
  try {
    then = read_safetensors(path);
  } catch (const FormatError& e) {
    detail::fail<FormatError>({e.what(), "; bring it back, or remove it to go on without comparing the images"});
  }
  each_contents(data, [&](const char* split, const Dataset& set) {
    const Tensor& sums = then[split];
    RT_CHECK_AS(FormatError, sums.dtype() == DType::i64 && sums.shape() == Shape({set.size()}), path,
                ": expected a checksum of each image in ", split);
    for (int64_t i = 0; i < set.size(); ++i)
      if (const int64_t sum = sums.data<int64_t>()[i]; sum != kNotRead)
        RT_CHECK_AS(UsageError, set.contents->expect(i, uint32_t(sum)), set.encoded->path(i),
                    ": has another content than when the run read it (", path,
                    "); bring it back, or choose another "
                    "--run");
  });
}

}  // namespace ringtape
