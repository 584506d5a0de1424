#pragma once
#include <cstdint>

#include "core/dtype.h"
#include "kernels/image_changes.h"

namespace ringtape {

template <class T> RT_HD inline T smaller(T a, T b) { return a < b ? a : b; }
template <class T> RT_HD inline T greater(T a, T b) { return a > b ? a : b; }

// An axis that is scaled from `from` units to `to` pixels. An input pixel is `by` units wide, and the first one begins
// `before` units before what is scaled. Usually each is a unit; those of an image that was decoded to a half are two,
// so that its edges need not lie between pixels (Pillow's box).
struct ScaledAxis {
  int64_t from, to, by = 1, before = 0;
  Interpolation how = Interpolation::bilinear;
  RT_HD int64_t pixels() const { return (before + from + by - 1) / by; }
  RT_HD bool same() const { return from == to && by == 1; }
};

// PIL's resampling of 8-bit images along one axis. Pixel i of the output is a weighted sum of pixels [first, end) of
// the input. With the larger of an input and an output pixel as the unit, the weights form a triangle around its
// centre, or Keys' cubic with a = -1/2, which is negative from 1 to 2. PIL's weights are f64, rounded to 2^-kTapBits;
// this integer computation gives the same. Distances are in units of 1 / (2 to).
inline constexpr int kTapBits = 22;
struct Taps {
  int64_t first, end, sum;
};
RT_HD inline int64_t unit_of(const ScaledAxis& a) { return 2 * greater(a.from, a.to * a.by); }
RT_HD inline int64_t reach(const ScaledAxis& a) { return (a.how == Interpolation::bicubic ? 2 : 1) * unit_of(a); }
RT_HD inline int64_t most_taps(const ScaledAxis& a) { return (reach(a) + a.to * a.by - 1) / (a.to * a.by); }
RT_HD inline int64_t tap(const ScaledAxis& a, int64_t i, int64_t x) {
  const int64_t away = a.to * ((2 * x + 1) * a.by - 2 * a.before) - (2 * i + 1) * a.from, d = away < 0 ? -away : away;
  const int64_t one = unit_of(a);
  if (a.how == Interpolation::bilinear) return one - d;
  return d < one ? (3 * d - 5 * one) * d * d + 2 * one * one * one
                 : 4 * one * one * one - ((d - 5 * one) * d + 8 * one * one) * d;
}
RT_HD inline Taps taps_of(const ScaledAxis& a, int64_t i) {
  const int64_t pixel = 2 * a.to * a.by, centre = (2 * i + 1) * a.from + 2 * a.to * a.before - a.to * a.by;
  Taps t;
  t.first = centre < reach(a) ? 0 : (centre - reach(a)) / pixel + 1;
  t.end = smaller((centre + reach(a) + pixel - 1) / pixel, a.pixels());
  t.sum = 0;
  for (int64_t x = t.first; x < t.end; ++x) t.sum += tap(a, i, x);
  return t;
}
RT_HD inline int32_t weight(const Taps& t, const ScaledAxis& a, int64_t i, int64_t x) {
  const int64_t part = tap(a, i, x);
  if (a.how == Interpolation::bilinear) return int32_t(((part << (kTapBits + 1)) + t.sum) / (2 * t.sum));
  const double scaled = double(part) / double(t.sum) * (1 << kTapBits);  // that product is exact: nothing to contract
  return int32_t(scaled + (part < 0 ? -0.5 : 0.5));
}

// Rounds a sum in units of 2^-kTapBits.
RT_HD inline uint8_t resampled(int32_t sum) {
  return uint8_t(smaller(greater((sum + (1 << (kTapBits - 1))) >> kTapBits, 0), 255));
}

}  // namespace ringtape
