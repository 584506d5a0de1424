#include "train/io/safetensors.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "core/printable.h"
#include "kernels/copy.h"
#include "train/io/file.h"
#include "train/io/foreign_weights.h"
#include "train/io/hash.h"
#include "train/io/json.h"
#include "train/io/safetensors_header.h"

namespace ringtape {
namespace {

constexpr const char* kMetadataChecksum = "ringtape.crc32";

// Of `bytes` bytes: those of another number are not what it was made for.
std::string checksum_text(const Crc32& crc, uint64_t bytes) { return concat(crc.str(), " of ", bytes, " bytes"); }
bool is_for(const std::string& checksum, uint64_t bytes) { return checksum.ends_with(concat(" of ", bytes, " bytes")); }

size_t bytes_of(const Tensor& x) { return size_t(x.size()) * size_of(x.dtype()); }

// Calls f with the rows of a tensor, on the host, some at a time.
template <class F> void each_part(const FileTensor& t, const F& f) {
  for (int64_t row = 0; row < t.rows(); row += t.rows_at_once())
    f(contiguous_on_host(t.get({row, std::min(row + t.rows_at_once(), t.rows())})));
}

std::string checksum_of(const std::vector<FileTensor>& tensors) {
  Crc32 crc;
  uint64_t bytes = 0;
  for (const FileTensor& t : tensors)
    each_part(t, [&](const Tensor& x) {
      crc.add(View(x).data, bytes_of(x));
      bytes += bytes_of(x);
    });
  return checksum_text(crc, bytes);
}

std::string header_text(const std::vector<FileTensor>& tensors, const std::map<std::string, std::string>& metadata) {
  std::string out = "{";
  if (!metadata.empty()) out += "\"__metadata__\":" + Json(metadata).text() + ",";
  uint64_t at = 0;
  for (const FileTensor& t : tensors) {
    const uint64_t bytes = uint64_t(t.shape.size()) * size_of(t.dtype);
    const Json written(t.name);
    RT_CHECK_AS(FormatError, parse_json(written.text()) == written, "tensor '", printable(t.name),
                "': the name must be UTF-8");
    out += written.text() + ":{\"dtype\":\"" + kTypeNames[size_t(t.dtype)] +
           "\",\"shape\":" + Json(std::vector<int64_t>(t.shape.begin(), t.shape.end())).text() + ",\"data_offsets\":[" +
           std::to_string(at) + "," + std::to_string(at + bytes) + "]},";
    at += bytes;
  }
  if (out.back() == ',') out.pop_back();
  out += '}';
  out.resize((out.size() + 7) / 8 * 8, ' ');
  return out;
}

}  // namespace

Tensor contiguous_on_host(const Tensor& x) {
  Tensor dense = x.detach();
  if (!dense.contiguous()) {
    dense = Tensor(x.shape(), x.dtype(), x.device());
    copy(dense, x);
  }
  return dense.device().type == DeviceType::cpu ? dense : dense.copy_to(Device{});
}

void check_bools(const std::string& path, const std::string& name, const Tensor& x) {
  if (x.dtype() != DType::b8) return;
  const auto* bytes = static_cast<const uint8_t*>(View(x).data);
  for (int64_t i = 0; i < x.size(); ++i)
    RT_CHECK_AS(FormatError, bytes[i] <= 1, path, ": tensor '", printable(name), "' of BOOL has the byte ",
                int(bytes[i]), "; expected 0 or 1");
}

const Tensor& Safetensors::operator[](const std::string& name) const {
  for (const NamedTensor& t : tensors)
    if (t.name == name) return t.tensor;
  detail::fail<FormatError>({"there is no tensor '", name, "' in the file"});
}

FileTensor::FileTensor(const NamedTensor& whole) : FileTensor(whole.name, whole.tensor.shape(), whole.tensor.dtype()) {
  const auto view = [x = whole.tensor.detach()](Part rows) {
    if (x.rank() == 0) return x;
    Shape shape = x.shape();
    shape[0] = rows.size();
    return x.window(shape, x.strides(), rows.begin * x.strides()[0]);
  };
  get = view;
  put = [view](Part rows, const Tensor& x) {
    const Tensor to = view(rows);
    copy(to, to.device() == x.device() ? x : x.copy_to(to.device()));
    to.storage()->written_by("read_safetensors");
  };
}

int64_t FileTensor::rows_at_once() const {
  const int64_t bytes = shape.size() * int64_t(size_of(dtype));
  return std::max<int64_t>(1, (16 << 20) / std::max<int64_t>(1, bytes / std::max<int64_t>(1, rows())));
}

std::vector<FileTensor> file_tensors(const std::vector<NamedTensor>& tensors) {
  for (const NamedTensor& t : tensors)
    RT_CHECK_AS(UsageError, t.tensor.defined(), "an undefined tensor '", t.name, "'");
  return {tensors.begin(), tensors.end()};
}

void write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                       std::map<std::string, std::string> metadata) {
  write_safetensors(path, file_tensors(tensors), std::move(metadata));
}

void write_safetensors(const std::string& path, std::vector<FileTensor> tensors,
                       std::map<std::string, std::string> metadata) {
  std::sort(tensors.begin(), tensors.end(), [](const FileTensor& a, const FileTensor& b) {
    return std::pair(size_of(b.dtype), a.name) < std::pair(size_of(a.dtype), b.name);
  });
  std::set<std::string> names = {"__metadata__"};
  for (const FileTensor& t : tensors)
    RT_CHECK_AS(UsageError, names.insert(t.name).second, path, ": two tensors named '", t.name, "'");
  if (!metadata.empty()) metadata[kMetadataChecksum] = checksum_of(tensors);
  const std::string header = header_text(tensors, metadata);
  const uint64_t header_bytes = header.size();
  AtomicFile file(path);
  file.write(&header_bytes, sizeof header_bytes);
  file.write(header.data(), header.size());
  for (const FileTensor& t : tensors) each_part(t, [&](const Tensor& x) { file.write(View(x).data, bytes_of(x)); });
  file.commit();
}

namespace {

// An open file and its header.
struct OpenFile {
  InputFile file;
  uint64_t at = 8;  // of what is read next
  SafetensorsHeader header;

  explicit OpenFile(const std::string& path) : file(path) {
    const uint64_t file_bytes = file.size();
    RT_CHECK_AS(FormatError, file_bytes >= 8, path, ": ", file_bytes, " bytes are too few for a safetensors file");
    uint64_t header_bytes = 0;
    file.read(0, &header_bytes, sizeof header_bytes);
    if (header_bytes > file_bytes - 8 || header_bytes > kLargestHeader)
      check_foreign(path, file.read(0, std::min(file_bytes, kForeignBytes)));
    RT_CHECK_AS(FormatError, header_bytes <= kLargestHeader && header_bytes <= file_bytes - 8, path, ": a header of ",
                header_bytes, " bytes in a file of ", file_bytes,
                "; truncated, or not a safetensors file, nor one of PyTorch's");
    header = parse_safetensors_header(file.read(8, header_bytes), file_bytes - 8 - header_bytes, path);
    at += header_bytes;
  }
  void read(void* to, uint64_t bytes) {
    file.read(at, to, bytes);
    at += bytes;
  }
};

}  // namespace

SafetensorsHeader read_safetensors_header(const std::string& path) { return std::move(OpenFile(path).header); }

void read_safetensors(const std::string& path, const std::function<void(const SafetensorsHeader&)>& begin,
                      const std::function<void(const TensorEntry&, Part rows, const Tensor& x)>& put,
                      const std::function<bool(const std::string& name)>& wanted) {
  OpenFile file(path);
  const SafetensorsHeader& header = file.header;
  const auto check = [&path](const TensorEntry& entry) {
    RT_CHECK_AS(FormatError, entry.problem.empty(), path, ": tensor '", printable(entry.name), "' ", entry.problem);
  };
  if (!wanted) std::ranges::for_each(header.tensors, check);
  begin(header);
  const uint64_t bytes = header.tensors.empty() ? 0 : header.tensors.back().end;
  const auto given = header.metadata.find(kMetadataChecksum);
  const std::string checksum = given != header.metadata.end() && is_for(given->second, bytes) ? given->second : "";
  Crc32 crc;
  for (const TensorEntry& entry : header.tensors) {
    const bool used = !wanted || wanted(entry.name);
    if (used) check(entry);
    if (!used && (checksum.empty() || !entry.problem.empty())) {
      file.at += entry.end - entry.begin;
      continue;
    }
    const FileTensor whole(entry.name, Shape(std::span<const int64_t>(entry.shape)), entry.dtype);
    for (int64_t row = 0; row < whole.rows(); row += whole.rows_at_once()) {
      const Part rows{row, std::min(row + whole.rows_at_once(), whole.rows())};
      Shape shape = whole.shape;
      if (shape.rank() > 0) shape[0] = rows.size();
      const Tensor x(shape, entry.dtype);
      file.read(View(x).data, bytes_of(x));
      if (!checksum.empty()) crc.add(View(x).data, bytes_of(x));
      if (!used) continue;
      check_bools(path, entry.name, x);
      put(entry, rows, x);
    }
  }
  RT_CHECK_AS(FormatError, checksum.empty() || checksum == checksum_text(crc, bytes), path,
              ": damaged: its numbers do not match the checksum in its metadata (a program that changes them must "
              "leave out ",
              kMetadataChecksum, ")");
}

Safetensors read_safetensors(const std::string& path) {
  Safetensors out;
  std::map<std::string, FileTensor> all;
  const auto begin = [&](const SafetensorsHeader& header) {
    out.metadata = header.metadata;
    for (const TensorEntry& entry : header.tensors) {
      out.tensors.push_back({entry.name, Tensor(Shape(std::span<const int64_t>(entry.shape)), entry.dtype)});
      all.emplace(entry.name, out.tensors.back());
    }
  };
  read_safetensors(path, begin,
                   [&](const TensorEntry& entry, Part rows, const Tensor& x) { all.at(entry.name).put(rows, x); });
  std::sort(out.tensors.begin(), out.tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return out;
}

}  // namespace ringtape
