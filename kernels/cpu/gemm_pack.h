#pragma once
#include <algorithm>

#include "kernels/cpu/vector.h"

RT_ISA_BEGIN

namespace {

// to[p * width + i] = from[i * stride + p * step] for i < count, zero for count <= i < width, for p < k: a panel in
// which the elements that a tile reads at step p are adjacent.
template <class T, class C = compute_t<T>>
void pack_rows(const T* from, int64_t step, int64_t count, int64_t width, int64_t k, C* to) {
  constexpr int lanes = kLanes<C>;
  for (int64_t p = 0; p < k; ++p, from += step, to += width) {
    int64_t i = 0;
    for (; i + lanes <= count; i += lanes) store(to + i, load_converted(from + i, lanes));
    if (i < count) store_partial(to + i, load_converted(from + i, count - i), count - i);
    for (i = count; i < width; ++i) to[i] = C(0);
  }
}

template <class T, class C = compute_t<T>>
void pack_cols(const T* from, int64_t stride, int64_t count, int64_t width, int64_t k, C* to) {
  constexpr int lanes = kLanes<C>;
  for (int64_t p = 0; p < k; p += lanes)
    for (int64_t i = 0; i < width; i += lanes) {
      Vec<C> v[lanes];
#pragma GCC unroll 16
      for (int l = 0; l < lanes; ++l)
        v[l] = i + l < count ? load_converted(from + (i + l) * stride + p, k - p) : Vec<C>{};
      transpose<C>(v);
      const int64_t steps = std::min<int64_t>(k - p, lanes), part = std::min<int64_t>(width - i, lanes);
#pragma GCC unroll 16
      for (int l = 0; l < lanes; ++l) {
        if (l >= steps) break;
        C* out = to + (p + l) * width + i;
        if (part == lanes)
          store(out, v[l]);
        else
          store_partial(out, v[l], part);
      }
    }
}

template <class T, class C = compute_t<T>>
void pack_panel(const T* from, int64_t stride, int64_t step, int64_t count, int64_t width, int64_t k, C* to) {
  if (stride == 1) return pack_rows(from, step, count, width, k, to);
  if (step == 1) return pack_cols(from, stride, count, width, k, to);
  for (int64_t p = 0; p < k; ++p)
    for (int64_t i = 0; i < width; ++i) to[p * width + i] = i < count ? C(from[i * stride + p * step]) : C(0);
}

}  // namespace

RT_ISA_END
