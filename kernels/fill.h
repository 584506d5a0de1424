#pragma once
#include <bit>
#include <cmath>
#include <limits>

#include "core/random.h"
#include "kernels/kernel.h"

namespace ringtape {

// y = value, in every dtype and any strides.
RT_KERNEL(fill, void(View y, double value));

// y[i] = i for contiguous y of shape (N): integers and floats.
RT_KERNEL(fill_range, void(View y));

// Contiguous floating-point y. Element i comes from word i % 4 of block i / 4 of the state: uniform in [low, high), in 2^24 steps, or
// 2^53 in f64; as numbers of the dtype, of which the one nearest to low may be below it.
RT_KERNEL(fill_uniform, void(View y, RandomState state, double low, double high));

// Normal by Box and Muller: elements 4j .. 4j + 3 from block j, two a pair of words.
RT_KERNEL(fill_normal, void(View y, RandomState state, double mean, double deviation));

// How fill_uniform makes numbers of type T.
template <class T>
class Uniform {
 public:
  using C = compute_t<T>;
  Uniform(double low, double high) : low_(low), range_(high - low), last_(high > low ? below(high) : std::numeric_limits<C>::infinity()) {}

  // The four of block b of the state, into y[0] .. y[count - 1], count <= 4.
  RT_HD void block(T* y, const RandomState& state, uint64_t b, int64_t count) const {
    const Philox4 r = philox(state.seed, uint64_t(state.stream), state.counter + b);
    Philox4 more{};  // the lower digits of f64 come from a stream beside, so that the state advances as for the others
    if constexpr (sizeof(T) == 8) more = philox(state.seed, uint64_t(state.stream) | uint64_t{1} << 63, state.counter + b);
    for (int i = 0; i < 4; ++i)
      if (i < count) y[i] = number(r.x[i], more.x[i]);
  }

 private:
  // By fma: the same digits whether or not a compiler would contract. Elements of 16 and 32 bits have the upper word alone.
  RT_HD T number(uint32_t bits, [[maybe_unused]] uint32_t lower) const {
    double u = double(uniform_from_bits(bits));
    if constexpr (sizeof(T) == 8) u += double(lower >> 3) * 0x1p-53;
    const T x = T(C(std::fma(range_, u, low_)));
    return C(x) > last_ ? T(last_) : x;
  }
  // The largest number of type T below x: rounding would reach x itself.
  static C below(double x) {
    using U = std::conditional_t<sizeof(T) == 2, uint16_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>;
    const T nearest = T(C(x));
    if (double(C(nearest)) < x) return C(nearest);
    const U bits = std::bit_cast<U>(nearest), sign = U(U{1} << (8 * sizeof(U) - 1));
    return C(std::bit_cast<T>(U(C(nearest) == 0 ? sign | 1 : bits & sign ? bits + 1 : bits - 1)));
  }

  double low_, range_;
  C last_;
};

}  // namespace ringtape
