#pragma once
#include <algorithm>
#include <cstring>

#include "kernels/cpu/vector/range.h"
#include "kernels/cpu/vector/vector.h"

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
        if (part == lanes) store(out, v[l]);
        else store_partial(out, v[l], part);
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

// The same for bf16 in pairs: to[p * width + 2 * i + q] = from[i * stride + (p + q) * step] for even p and q of 0 or 1,
// with zeros beyond an odd k.
inline void pack_pairs_of_rows(const bf16* from, int64_t step, int64_t count, int64_t width, int64_t k, bf16* to) {
  for (int64_t p = 0; p < k; p += 2, from += 2 * step, to += 2 * width) {
    const bf16* next = from + step;
    int64_t i = 0;
    if (p + 1 < k) RT_IVDEP
    for (; i < count; ++i) to[2 * i] = from[i], to[2 * i + 1] = next[i];
    else for (; i < count; ++i) to[2 * i] = from[i], to[2 * i + 1] = bf16();
    std::fill(to + 2 * i, to + 2 * width, bf16());
  }
}

// As pack_cols of vectors of pairs.
inline void pack_pairs_of_cols(const bf16* from, int64_t stride, int64_t count, int64_t width, int64_t k, bf16* to) {
  constexpr int lanes = kLanes<int32_t>;
  for (int64_t p = 0; p < k; p += 2 * lanes)
    for (int64_t i = 0; i < width; i += lanes) {
      Vec<int32_t> v[lanes];
      const int64_t depth = std::min<int64_t>(k - p, 2 * lanes);
      for (int l = 0; l < lanes; ++l) {
        const bf16* row = from + (i + l) * stride + p;
        if (i + l < count && depth == 2 * lanes) {
          std::memcpy(&v[l], row, sizeof v[l]);
        } else {
          v[l] = Vec<int32_t>{};
          if (i + l < count) std::memcpy(&v[l], row, size_t(depth) * sizeof(bf16));
        }
      }
      transpose<int32_t>(v);
      for (int l = 0; 2 * l < depth; ++l)
        std::memcpy(static_cast<void*>(to + (p + 2 * l) * width + 2 * i), &v[l],
                    sizeof(int32_t) * size_t(std::min<int64_t>(width - i, lanes)));
    }
}

inline void pack_pairs(const bf16* from, int64_t stride, int64_t step, int64_t count, int64_t width, int64_t k,
                       bf16* to) {
  if (stride == 1) return pack_pairs_of_rows(from, step, count, width, k, to);
  if (step == 1) return pack_pairs_of_cols(from, stride, count, width, k, to);
  for (int64_t p = 0; p < round_up(k, 2); ++p)
    for (int64_t i = 0; i < width; ++i)
      to[p / 2 * 2 * width + 2 * i + p % 2] = i < count && p < k ? from[i * stride + p * step] : bf16();
}

}  // namespace

RT_ISA_END
