#pragma once
#include <algorithm>

#include "autograd/ops/common.h"

// Shared by ops that work along one axis, or with an index.
namespace ringtape {

// `axis` counted from the front; a tensor without axes counts as one with a single axis, as in PyTorch.
inline int axis_of(const Tensor& x, int axis, const char* op) {
  RT_CHECK_AS(ShapeError, x.defined(), op, ": an undefined tensor");
  return normalize_axis(axis, std::max(x.rank(), 1), op);
}
// The size of that axis.
inline int64_t size_along(const Tensor& x, int axis) { return x.rank() == 0 ? 1 : x.shape()[axis]; }

// Contiguous x as (all axes in front of `axis`, `axis`, all axes after it), outside the graph.
inline Tensor three_axes(const Tensor& x, int axis) {
  Shape shape{1, 1, 1};
  for (int i = 0; i < x.rank(); ++i) shape[i < axis ? 0 : i == axis ? 1 : 2] *= x.shape()[i];
  return x.window(shape, contiguous_strides(shape));
}

// A contiguous i64 index from one of i64 or i32.
inline Tensor as_index(const Tensor& index, const char* op) {
  RT_CHECK_AS(ShapeError, index.defined(), op, ": an undefined index");
  RT_CHECK_AS(DTypeError, index.dtype() == DType::i64 || index.dtype() == DType::i32, op, ": the index is ",
              index.dtype(), ", not i64 or i32; convert it with cast(index, DType::i64)");
  return contiguous(cast(index, DType::i64));
}

// Throws UsageError if an index on the CPU is outside [0, n); CUDA's are not looked at.
inline void check_index(const Tensor& index, int64_t n, const char* op) {
  if (index.device().type != DeviceType::cpu) return;
  for (const int64_t i : index.span<int64_t>())
    RT_CHECK_AS(UsageError, i >= 0 && i < n, op, ": index ", i, " into an axis of size ", n);
}

}  // namespace ringtape
