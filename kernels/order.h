#pragma once
#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "core/dtype.h"

namespace ringtape {

// The order of the elements of a type as that of unsigned numbers, their keys. NaN, of any sign, is above all others;
// 0 and -0 are equal.
template <class T> struct Order {
  using Bits = bits_t<T>;
  using Key = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  static constexpr bool floating = is_half_v<T> || std::is_floating_point_v<T>;
  static constexpr Bits sign = Bits(Bits{1} << (8 * sizeof(T) - 1));
  static constexpr Key last = Bits(~Bits{0});  // of NaN. `last - key` has the reverse order

  static constexpr Bits infinity() {
    if constexpr (std::is_same_v<T, f16>) return Bits(0x7c00);
    else if constexpr (std::is_same_v<T, bf16>) return Bits(0x7f80);
    else return std::bit_cast<Bits>(std::numeric_limits<T>::infinity());
  }
  RT_HD static Key key(T x) {
    const Bits bits = std::bit_cast<Bits>(x);
    if constexpr (floating) {
      const Bits magnitude = Bits(bits & ~sign);
      const Bits key = Bits(bits & sign ? sign - magnitude : sign + magnitude);
      return magnitude > infinity() ? last : Key(key);
    } else if constexpr (std::is_signed_v<T>) {
      return Key(bits ^ sign);
    } else {
      return Key(bits);
    }
  }
  // The position from the front of a sorted row, in numbers that only compare: keys, or `descending` the reverse.
  RT_HD static Key place(T x, bool descending) { return descending ? Key(last - key(x)) : key(x); }
  // The extreme has the largest: a NaN, or else the largest or the `smallest` element.
  RT_HD static Key rank(T x, bool smallest) {
    const Key k = key(x);
    if constexpr (floating) return smallest && k != last ? Key(last - k) : k;
    else return smallest ? Key(last - k) : k;
  }
};

}  // namespace ringtape
