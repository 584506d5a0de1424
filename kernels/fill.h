#pragma once
#include <bit>
#include <cmath>
#include <limits>

#include "core/random.h"
#include "kernels/kernel.h"

namespace ringtape {

// y = value, for every dtype and any strides.
RT_KERNEL(fill, void(View y, double value));

// y[i] = first + i step, computed in f64 and rounded, for y of shape (N) and any stride, integer or float.
RT_KERNEL(fill_range, void(View y, double first, double step));

// Contiguous floating-point y. Element i comes from word i % 4 of block i / 4 of the state: uniform in [low, high) in
// 2^24 steps, or 2^53 for f64, rounded to the dtype. So the smallest may be below low by rounding.
RT_KERNEL(fill_uniform, void(View y, RandomState state, double low, double high));

// Normal distribution by Box and Muller: elements 4j .. 4j + 3 from block j, two for each pair of words.
RT_KERNEL(fill_normal, void(View y, RandomState state, double mean, double deviation));

// The numbers of fill_uniform for type T.
template <class T> class Uniform {
 public:
  using C = compute_t<T>;
  Uniform(double low, double high)
      : low_(low), range_(high - low), last_(high > low ? below(high) : std::numeric_limits<C>::infinity()) {}

  // Writes the first `count` <= 4 numbers of block b of the state to y.
  RT_HD void block(T* y, const RandomState& state, uint64_t b, int64_t count) const {
    const Philox4 r = philox(state.seed, uint64_t(state.stream), state.counter + b);
    Philox4 more{};  // lower digits of f64 come from a second stream, so that the state advances as for other dtypes
    if constexpr (sizeof(T) == 8)
      more = philox(state.seed, uint64_t(state.stream) | uint64_t{1} << 63, state.counter + b);
    for (int i = 0; i < 4; ++i)
      if (i < count) y[i] = number(r.x[i], more.x[i]);
  }

 private:
  // Uses fma: the same digits whether or not a compiler contracts. 16-bit and 32-bit elements use only the upper word.
  RT_HD T number(uint32_t bits, [[maybe_unused]] uint32_t lower) const {
    double u = double(uniform_from_bits(bits));
    if constexpr (sizeof(T) == 8) u += double(lower >> 3) * 0x1p-53;
    const T x = T(C(std::fma(range_, u, low_)));
    return C(x) > last_ ? T(last_) : x;
  }
  // The largest number of type T below x, since rounding may give x itself.
  static C below(double x) {
    using U = bits_t<T>;
    const T nearest = T(C(x));
    if (double(C(nearest)) < x) return C(nearest);
    const U bits = std::bit_cast<U>(nearest), sign = U(U{1} << (8 * sizeof(U) - 1));
    return C(std::bit_cast<T>(U(C(nearest) == 0 ? sign | 1 : bits & sign ? bits + 1 : bits - 1)));
  }

  double low_, range_;
  C last_;
};

}  // namespace ringtape
