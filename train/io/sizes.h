#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

namespace ringtape {

inline constexpr uint64_t kDeflateRatio = 1032;  // maximum bytes from one deflated byte (zlib.net/zlib_tech.html)

// The number of elements of a declared shape; nothing if no tensor can have it. Overflow counts even if another size is
// 0, since strides are products of the other sizes.
inline std::optional<uint64_t> declared_elements(std::span<const uint64_t> sizes) {
  uint64_t most = 1, elements = 1;
  for (uint64_t size : sizes) {
    if (__builtin_mul_overflow(most, std::max<uint64_t>(size, 1), &most) || most > INT64_MAX / 8) return {};
    elements *= size;
  }
  return elements;
}

}  // namespace ringtape
