#pragma once
#include <cmath>

#include "kernels/cpu/vector/channels.h"
#include "kernels/cpu/vector/mask.h"

RT_ISA_BEGIN

namespace {

template <class C> C inverse_deviation(const View& var, int64_t c, double eps) {
  return C(1 / std::sqrt(double(var.as<C>()[c]) + eps));
}

// y = (x - mean) w / sqrt(var + eps) + b, with values per channel, for rows of them.
template <class T> class Normalize {
 public:
  using C = compute_t<T>;
  Normalize(const Rows& rows, const View& mean, const View& var, const View& w, const View& b, double eps)
      : n_(rows.n), center_(rows, [&](int64_t c) { return mean.as<C>()[c]; }),
        scale_(rows, [&](int64_t c) { return w.as<C>()[c] * inverse_deviation<C>(var, c, eps); }),
        shift_(rows, [&](int64_t c) { return b.as<C>()[c]; }) {}

  // n elements, at most a row, from the first channel on. y, mask and residual may be null.
  RT_INLINE void row(T* y, uint8_t* mask, const T* x, const T* residual, bool relu, int64_t n) const {
    constexpr int64_t step = std::max<int64_t>(kPack, kWide<T>);
    for_each_step<step>(n, [&](int64_t i, auto count) RT_INLINE_LAMBDA {
      uint32_t above = 0;
      prefetch_ahead(x + i);
      if (residual) prefetch_ahead(residual + i);
      if (y) prefetch_to_write(y + i);
#pragma GCC unroll 8
      for (int64_t l = 0; l < step; l += kWide<T>) {
        const int64_t at = i + l, left = count - l;
        if (left <= 0) break;
        Wide<T> v = normalized(x + at, at, left);
        if (residual) v = v + load_wide(residual + at, left);
        if (relu) {
          above |= bits_above_zero(v) << l;
          v = not_negative(v);
        }
        if (y) store_wide(y + at, v, left);
      }
      if (mask) store_mask<step>(mask + i / 8, above, count);
    });
  }

  // With a ReLU; x is any number of pixels.
  void relu(T* y, const T* x, int64_t elements) const {
    for (int64_t i = 0; i < elements; i += n_) row(y + i, nullptr, x + i, nullptr, true, std::min(n_, elements - i));
  }

  // The same of a part of a pixel: `count` elements from channel `first` on, a multiple of kWide.
  RT_INLINE void relu(T* y, const T* x, int64_t first, auto count) const {
    for_each_step<kWide<T>>(count, [&](int64_t i, auto left) RT_INLINE_LAMBDA {
      store_wide(y + i, not_negative(normalized(x + i, first + i, left)), left);
    });
  }

 private:
  // Of `count` elements from x on, which are in channel `first` and those behind it.
  RT_INLINE Wide<T> normalized(const T* x, int64_t first, int64_t count) const {
    const C *const mean = center_, *const scale = scale_, *const b = shift_;
    return (load_wide(x, count) - load_in_order<T>(mean + first)) * load_in_order<T>(scale + first) +
           load_in_order<T>(b + first);
  }

  int64_t n_;
  PerColumn<T> center_, scale_, shift_;
};

}  // namespace

RT_ISA_END
