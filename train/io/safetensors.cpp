#include "train/io/safetensors.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "kernels/copy.h"
#include "train/io/file.h"
#include "train/io/json.h"
#include "train/io/sizes.h"

namespace ringtape {
namespace {

using nlohmann::json;

constexpr uint64_t kLargestHeader = 100'000'000;  // bytes; the reference reader's limit
constexpr std::array<const char*, 8> kTypeNames = {"BOOL", "U8", "I32", "I64", "F16", "BF16", "F32", "F64"};

struct Entry {
  std::string name;
  DType dtype = DType::f32;
  std::vector<uint64_t> shape;
  uint64_t begin = 0, end = 0;  // bytes from the start of the data
};

Tensor on_host(const Tensor& x) {
  Tensor dense = x.detach();
  if (!dense.contiguous()) {
    dense = Tensor(x.shape(), x.dtype(), x.device());
    copy(dense, x);
  }
  return dense.device().type == DeviceType::cpu ? dense : dense.copy_to(Device{});
}

// Parses the header, refusing what JSON alone would let pass: repeated names and depth.
json parse_header(const std::string& path, const std::string& text) {
  std::vector<std::set<std::string>> keys;
  const auto check = [&](int depth, json::parse_event_t event, json& value) {
    RT_CHECK_AS(FormatError, depth <= 4, path, ": header nested too deep");
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key)
      RT_CHECK_AS(FormatError, keys.back().insert(value.get<std::string>()).second, path,
                  ": the header has '", value.get<std::string>(), "' twice");
    return true;
  };
  try {
    RT_CHECK_AS(FormatError, text.starts_with('{'), path,
                ": the header does not start with {; not a safetensors file");
    return json::parse(text, check);
  } catch (const json::exception& e) {
    const char* reason = std::strstr(e.what(), "] ");
    detail::fail<FormatError>(path, ": the header is not valid JSON: ", reason ? reason + 2 : e.what());
  }
}

const json& member(const std::string& path, const std::string& name, const json& info, const char* key) {
  const auto found = info.find(key);
  RT_CHECK_AS(FormatError, found != info.end(), path, ": tensor '", name, "' has no ", key);
  return *found;
}

std::vector<uint64_t> numbers(const std::string& path, const std::string& name, const json& list,
                              const char* key) {
  bool valid = list.is_array();
  if (valid)
    for (const json& x : list) valid = valid && x.is_number_unsigned();
  RT_CHECK_AS(FormatError, valid, path, ": tensor '", name, "': ", key,
              " must be a list of whole numbers, got ", list.dump());
  return list.get<std::vector<uint64_t>>();
}

Entry parse_entry(const std::string& path, const std::string& name, const json& info) {
  RT_CHECK_AS(FormatError, info.is_object(), path, ": tensor '", name, "' is not described by an object");
  Entry entry;
  entry.name = name;
  const json& type = member(path, name, info, "dtype");
  const auto found =
      std::find_if(kTypeNames.begin(), kTypeNames.end(), [&](const char* t) { return type == t; });
  RT_CHECK_AS(FormatError, found != kTypeNames.end(), path, ": tensor '", name, "' has dtype ", type.dump(),
              "; known are BOOL U8 I32 I64 F16 BF16 F32 F64");
  entry.dtype = DType(found - kTypeNames.begin());
  entry.shape = numbers(path, name, member(path, name, info, "shape"), "shape");
  RT_CHECK_AS(FormatError, entry.shape.size() <= size_t(kMaxRank), path, ": tensor '", name, "' has ",
              entry.shape.size(), " axes; at most ", kMaxRank, " are supported");
  const auto offsets = numbers(path, name, member(path, name, info, "data_offsets"), "data_offsets");
  RT_CHECK_AS(FormatError, offsets.size() == 2, path, ": tensor '", name,
              "': data_offsets must be two numbers");
  entry.begin = offsets[0], entry.end = offsets[1];
  return entry;
}

std::map<std::string, std::string> parse_metadata(const std::string& path, const json& info) {
  bool valid = info.is_object();
  if (valid)
    for (const json& value : info) valid = valid && value.is_string();
  RT_CHECK_AS(FormatError, valid, path, ": __metadata__ must map strings to strings");
  return info.get<std::map<std::string, std::string>>();
}

// Entries must follow each other without holes, be as long as their shapes say, and end where the file ends.
void check_layout(const std::string& path, std::vector<Entry>& entries, uint64_t data_bytes) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  uint64_t at = 0;
  for (const Entry& entry : entries) {
    RT_CHECK_AS(FormatError, entry.begin == at && entry.end >= entry.begin, path, ": tensor '", entry.name,
                "' lies at bytes ", entry.begin, " to ", entry.end, "; expected it to begin at ", at);
    const std::optional<uint64_t> elements = declared_elements(entry.shape);
    RT_CHECK_AS(FormatError, elements && *elements * size_of(entry.dtype) == entry.end - entry.begin, path,
                ": tensor '", entry.name, "' takes ", entry.end - entry.begin,
                " bytes, which is not what its shape and dtype need");
    at = entry.end;
  }
  RT_CHECK_AS(FormatError, at == data_bytes, path, ": the header describes ", at,
              " bytes of tensors, the file holds ", data_bytes);
}

void check_bools(const std::string& path, const std::string& name, const Tensor& x) {
  const auto* bytes = static_cast<const uint8_t*>(View(x).data);
  for (int64_t i = 0; i < x.size(); ++i)
    RT_CHECK_AS(FormatError, bytes[i] <= 1, path, ": tensor '", name, "' of BOOL has the byte ",
                int(bytes[i]), "; expected 0 or 1");
}

std::string header_text(const std::vector<NamedTensor>& tensors,
                        const std::map<std::string, std::string>& metadata) {
  std::string out = "{";
  if (!metadata.empty()) out += "\"__metadata__\":" + json_text(json(metadata)) + ",";
  uint64_t at = 0;
  for (const auto& [name, x] : tensors) {
    const uint64_t bytes = uint64_t(x.size()) * size_of(x.dtype());
    out += json(name).dump() + ":{\"dtype\":\"" + kTypeNames[size_t(x.dtype())] +
           "\",\"shape\":" + json(std::vector<int64_t>(x.shape().begin(), x.shape().end())).dump() +
           ",\"data_offsets\":[" + std::to_string(at) + "," + std::to_string(at + bytes) + "]},";
    at += bytes;
  }
  if (out.back() == ',') out.pop_back();
  out += '}';
  out.resize((out.size() + 7) / 8 * 8, ' ');
  return out;
}

}  // namespace

const Tensor& Safetensors::operator[](const std::string& name) const {
  for (const NamedTensor& t : tensors)
    if (t.name == name) return t.tensor;
  detail::fail<FormatError>("there is no tensor '", name, "' in the file");
}

void write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<NamedTensor> sorted = tensors;
  std::sort(sorted.begin(), sorted.end(), [](const NamedTensor& a, const NamedTensor& b) {
    return std::pair(size_of(b.tensor.dtype()), a.name) < std::pair(size_of(a.tensor.dtype()), b.name);
  });
  std::set<std::string> names = {"__metadata__"};
  for (const NamedTensor& t : sorted)
    RT_CHECK_AS(UsageError, names.insert(t.name).second, path, ": two tensors named '", t.name, "'");
  const std::string header = header_text(sorted, metadata);
  const uint64_t header_bytes = header.size();
  AtomicFile file(path);
  file.write(&header_bytes, sizeof header_bytes);
  file.write(header.data(), header.size());
  for (const NamedTensor& t : sorted) {
    const Tensor x = on_host(t.tensor);
    file.write(View(x).data, size_t(x.size()) * size_of(x.dtype()));
  }
  file.commit();
}

Safetensors read_safetensors(const std::string& path) {
  std::error_code error;
  const uint64_t file_bytes = std::filesystem::file_size(path, error);
  RT_CHECK_AS(IoError, !error, path, ": cannot open: ", error.message());
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  const auto read = [&](void* to, uint64_t bytes) {
    RT_CHECK_AS(IoError, file.read(static_cast<char*>(to), std::streamsize(bytes)), path,
                ": cannot read: ", errno ? std::strerror(errno) : "it has become shorter");
  };
  RT_CHECK_AS(FormatError, file_bytes >= 8, path, ": ", file_bytes,
              " bytes are too few for a safetensors file");
  uint64_t header_bytes = 0;
  read(&header_bytes, 8);
  RT_CHECK_AS(FormatError, header_bytes <= kLargestHeader && header_bytes <= file_bytes - 8, path,
              ": a header of ", header_bytes, " bytes in a file of ", file_bytes,
              "; truncated, or not a safetensors file");
  std::string text(header_bytes, '\0');
  read(text.data(), header_bytes);

  Safetensors out;
  std::vector<Entry> entries;
  const json header = parse_header(path, text);
  for (const auto& [name, info] : header.items())
    if (name == "__metadata__")
      out.metadata = parse_metadata(path, info);
    else
      entries.push_back(parse_entry(path, name, info));
  check_layout(path, entries, file_bytes - 8 - header_bytes);
  for (const Entry& entry : entries) {
    const std::vector<int64_t> dims(entry.shape.begin(), entry.shape.end());
    Tensor x(Shape(std::span<const int64_t>(dims)), entry.dtype);
    read(View(x).data, entry.end - entry.begin);
    if (entry.dtype == DType::b8) check_bools(path, entry.name, x);
    out.tensors.push_back({entry.name, x});
  }
  std::sort(out.tensors.begin(), out.tensors.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return out;
}

}  // namespace ringtape
