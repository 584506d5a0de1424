#include "train/data/identity.h"

#include "core/parallel.h"
#include "train/io/hash.h"

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
    for (int64_t i = begin; i < end; ++i)
      own[size_t(i)] = Crc32().add(bytes.data() + size_t(i) * each, each).value();
  });
  crc.add(own.data(), own.size() * sizeof own[0]);
}

}  // namespace

std::string DataIdentity::str() const {
  return concat(with_commas(train), " training and ", with_commas(test), " test images, CRC-32 of their labels ",
                labels, ", of their pixels ", pixels);
}

DataIdentity identity_of(const Splits& data) {
  Crc32 labels, pixels;
  for (const Dataset* set : {&data.train, &data.test}) {
    const Tensor here = on_host(set->labels);
    const auto all = here.span<int64_t>();
    labels.add(all.data(), all.size_bytes());
    add_images(pixels, set->images);
  }
  return {data.train.size(), data.test.size(), labels.str(), pixels.str()};
}

}  // namespace ringtape
