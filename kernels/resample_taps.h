#pragma once
#include <cstdint>

#include "core/dtype.h"

namespace ringtape {

template <class T>
RT_HD inline T smaller(T a, T b) { return a < b ? a : b; }
template <class T>
RT_HD inline T greater(T a, T b) { return a > b ? a : b; }

// PIL's resampling of 8-bit images along one axis. Pixel i of `to` is a weighted sum of pixels [first, end) of `from`.
// The weights form a triangle around its centre, with the width of the larger of an input and an output pixel. PIL's
// weights are f64, rounded to 2^-kTapBits; this integer computation gives the same. Distances are in units of 1 / (2
// to).
inline constexpr int kTapBits = 22;
struct Taps {
  int64_t first, end, sum;
};
RT_HD inline int64_t most_taps(int64_t from, int64_t to) { return (2 * greater(from, to) + to - 1) / to; }
RT_HD inline int64_t tap(int64_t from, int64_t to, int64_t i, int64_t x) {
  const int64_t distance = 2 * to * x + to - (2 * i + 1) * from;
  return 2 * greater(from, to) - (distance < 0 ? -distance : distance);
}
RT_HD inline Taps taps_of(int64_t from, int64_t to, int64_t i) {
  const int64_t centre = (2 * i + 1) * from - to, reach = 2 * greater(from, to);
  Taps t;
  t.first = centre < reach ? 0 : (centre - reach) / (2 * to) + 1;
  t.end = smaller((centre + reach + 2 * to - 1) / (2 * to), from);
  t.sum = 0;
  for (int64_t x = t.first; x < t.end; ++x) t.sum += tap(from, to, i, x);
  return t;
}
RT_HD inline int32_t weight(const Taps& t, int64_t from, int64_t to, int64_t i, int64_t x) {
  return int32_t(((tap(from, to, i, x) << (kTapBits + 1)) + t.sum) / (2 * t.sum));
}

// Rounds a sum in units of 2^-kTapBits.
RT_HD inline uint8_t resampled(int32_t sum) {
  return uint8_t(smaller((sum + (1 << (kTapBits - 1))) >> kTapBits, 255));  // many rounded weights may be above 1
}

}  // namespace ringtape
