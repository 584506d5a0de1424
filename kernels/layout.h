#pragma once
#include <array>
#include <cstddef>

#include "core/view.h"

namespace ringtape {

// The memory layout of N operands of an elementwise operation in one shape: that of operand 0, to which the others
// broadcast. Strides are in elements, 0 where an operand repeats. rank >= 1.
template <size_t N> struct Layout {
  int rank = 0;
  int64_t dims[kMaxRank];
  int64_t strides[N][kMaxRank];

  int64_t size() const {
    int64_t n = 1;
    for (int d = 0; d < rank; ++d) n *= dims[d];
    return n;
  }
  bool dense(size_t k) const {  // element i of operand k is at i
    int64_t step = 1;
    bool dense = true;
    for (int d = rank - 1; d >= 0; --d) {
      dense = dense && (strides[k][d] == step || dims[d] == 1);
      step *= dims[d];
    }
    return dense;
  }
  bool constant(size_t k) const {  // the same element everywhere
    bool constant = true;
    for (int d = 0; d < rank; ++d) constant = constant && strides[k][d] == 0;
    return constant;
  }
};

// Merges adjacent axes that are contiguous in all operands.
template <size_t N> Layout<N> coalesce(const std::array<View, N>& views) {
  const View& y = views[0];
  Layout<N> out;
  for (int axis = 0; axis < y.rank; ++axis) {
    if (y.dims[axis] == 1) continue;
    int64_t step[N];
    for (size_t k = 0; k < N; ++k) {
      const int own = axis - (y.rank - views[k].rank);
      step[k] = own < 0 || views[k].dims[own] == 1 ? 0 : views[k].strides[own];
    }
    bool merge = out.rank > 0;
    for (size_t k = 0; k < N; ++k) merge = merge && out.strides[k][out.rank - 1] == step[k] * y.dims[axis];
    if (!merge) out.dims[out.rank++] = 1;
    out.dims[out.rank - 1] *= y.dims[axis];
    for (size_t k = 0; k < N; ++k) out.strides[k][out.rank - 1] = step[k];
  }
  if (out.rank == 0) {
    out.rank = 1;
    out.dims[0] = y.size();  // 1
    for (size_t k = 0; k < N; ++k) out.strides[k][0] = 0;
  }
  return out;
}

// Calls f(part, offsets) for parts of at most `limit` elements that together cover the layout; operand k of a part
// starts offsets[k] elements after its begin. For devices that index with 32 bits.
template <size_t N, class F>
void split(const Layout<N>& whole, int64_t limit, const F& f, std::array<int64_t, N> offsets = {}) {
  const int64_t n = whole.size();
  if (n <= limit) return n ? f(whole, offsets) : void();
  int axis = 0;
  while (whole.dims[axis] == 1) ++axis;
  Layout<N> half = whole;
  half.dims[axis] = whole.dims[axis] / 2;
  split(half, limit, f, offsets);
  for (size_t k = 0; k < N; ++k) offsets[k] += half.dims[axis] * whole.strides[k][axis];
  half.dims[axis] = whole.dims[axis] - half.dims[axis];
  split(half, limit, f, offsets);
}

}  // namespace ringtape
