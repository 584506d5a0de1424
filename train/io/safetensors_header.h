#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"

namespace ringtape {

// Names of the element types, in the order of DType.
inline constexpr std::array<const char*, 8> kTypeNames = {"BOOL", "U8", "I32", "I64", "F16", "BF16", "F32", "F64"};

// A tensor's entry in the header of a safetensors file.
struct TensorEntry {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // bytes from the start of the data
  std::string problem = {};     // why it cannot be read, then without a dtype
};

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  std::vector<TensorEntry> tensors;                      // in the order of their bytes
  std::vector<std::string> beside = {};                  // names of other sets of weights, in other formats
  const TensorEntry* find(std::string_view name) const;  // null if there is none
};

inline constexpr uint64_t kLargestHeader = 100'000'000;   // bytes; the reference reader's limit
inline constexpr uint64_t kLargestMetadata = 10'000'000;  // total of the names and texts of the metadata
inline constexpr size_t kMaxTensors = 1'000'000;

// Parses the JSON of a header; `data_bytes` follow it in the file. Needs at most a few times the memory of the text:
// less than 8 bytes per byte. Throws FormatError, beginning with `path`, for everything that the reference reader
// rejects, for unknown element types (an unsupported one is a problem of its entry), for more than 8 axes, and above
// the limits above.
SafetensorsHeader parse_safetensors_header(std::string_view text, uint64_t data_bytes, const std::string& path);

// The header of a file. Throws IoError, too.
SafetensorsHeader read_safetensors_header(const std::string& path);

}  // namespace ringtape
