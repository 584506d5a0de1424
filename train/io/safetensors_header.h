#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"

namespace ringtape {

// By DType.
inline constexpr std::array<const char*, 8> kTypeNames = {"BOOL", "U8",   "I32", "I64", "F16",  "BF16", "F32", "F64"};

// What a safetensors file says of a tensor, before its bytes are read.
struct TensorEntry {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // bytes from the start of the data
};

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  std::vector<TensorEntry> tensors;                      // in the order of their bytes
  const TensorEntry* find(std::string_view name) const;  // null where there is none
};

inline constexpr uint64_t kLargestHeader = 100'000'000;   // bytes; the reference reader's limit
inline constexpr uint64_t kLargestMetadata = 10'000'000;  // of its names and texts
inline constexpr size_t kMostTensors = 1'000'000;

// The JSON of a header, of a file with so many bytes of data after it. Takes memory of a few times the text at most:
// less than 8 bytes a byte. Throws FormatError, beginning with `path`, for everything that the reference reader
// refuses, for element types we do not have, for more than 8 axes, and beyond the limits above.
SafetensorsHeader parse_safetensors_header(std::string_view text, uint64_t data_bytes, const std::string& path);

// Of a file. Throws IoError, too.
SafetensorsHeader read_safetensors_header(const std::string& path);

}  // namespace ringtape
