#pragma once
#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <optional>

// Maps of tensors, as the emulated driver encodes them for the emulated copy engine.
namespace ringtape::emulation {

constexpr int kMaxRank = 5;

struct TensorMap {  // innermost first
  static constexpr uint64_t kMark = 0x70616d2d726f736e;
  uint64_t mark;
  char* data;
  uint64_t strides[kMaxRank];  // bytes
  uint32_t dims[kMaxRank];
  uint16_t box[kMaxRank];
  uint8_t rank, element;  // bytes
  bool swizzled;          // by 128 bytes
  size_t row_bytes() const { return size_t{box[0]} * element; }
  size_t rows() const;
  size_t box_bytes() const { return rows() * row_bytes(); }
};
static_assert(sizeof(TensorMap) <= sizeof(CUtensorMap));

std::optional<TensorMap> tensor_map(const CUtensorMap& map);  // nullopt: it is none

// Where a byte of an area that is swizzled by 128 bytes lies: of each 1024 bytes, row r has its chunks of 16 bytes at
// their number ^ r.
inline uint32_t swizzled(uint32_t address) { return address ^ (address >> 7 & 7) << 4; }

}  // namespace ringtape::emulation
