#pragma once
#include <algorithm>

#include "autograd/autocast.h"
#include "autograd/create.h"
#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/saved.h"
#include "autograd/tape.h"
#include "autograd/trace.h"

// Shared by the files of the ops.
namespace ringtape {

inline void check_defined(const Tensor& x, const char* op) {
  RT_CHECK_AS(ShapeError, x.defined(), op, ": an undefined tensor");
}

inline void check_float(const Tensor& x, const char* op) {
  check_defined(x, op);
  RT_CHECK_AS(DTypeError, is_float(x.dtype()), op, ": needs a floating-point tensor, got ", x.dtype(),
              "; convert it with cast(x, DType::f32)");
}

// Of sums, statistics and parameters beside x: 16-bit numbers have f32.
inline DType wide_dtype(const Tensor& x) { return x.dtype() == DType::f64 ? DType::f64 : DType::f32; }

// x, or whole numbers and truth values as f32.
inline Tensor as_float(const Tensor& x, const char* op) {
  check_defined(x, op);
  return is_float(x.dtype()) ? x : cast(x, DType::f32);
}

inline void check_same_device(const Tensor& a, const Tensor& b, const char* op) {
  RT_CHECK_AS(ShapeError, a.defined() && b.defined(), op, ": an undefined tensor");
  RT_CHECK_AS(DeviceError, a.device() == b.device(), op, ": operands on ", a.device(), " and ", b.device(),
              "; move one with to(x, device)");
}

inline void check_same(const Tensor& a, const Tensor& b, const char* op) {
  RT_CHECK_AS(ShapeError, a.defined() && b.defined(), op, ": an undefined tensor");
  RT_CHECK_AS(DTypeError, a.dtype() == b.dtype(), op, ": operands of ", a.dtype(), " and ", b.dtype(),
              "; convert one with cast(x, dtype)");
  check_same_device(a, b, op);
}

// A number as a tensor that broadcasts, for a result of dtype `result`; modulo 2^bits if that is whole. Not rounded to
// 16 bits: kernels convert each operand separately.
inline Tensor number_of(Scalar value, DType result, Device device) {
  if (is_float(result)) return full({}, value.real(), result == DType::f64 ? DType::f64 : DType::f32, device);
  return cast(to(from_host(std::vector<int64_t>{value.integer()}, {}), device), result);
}

// dy summed over the axes along which `shape` was broadcast to dy's shape.
inline Tensor sum_to(const Tensor& dy, const Shape& shape) {
  if (dy.shape() == shape) return dy;
  const int lead = dy.rank() - shape.rank();
  Axes axes;
  for (int i = 0; i < dy.rank(); ++i)
    if (i < lead || (shape[i - lead] == 1 && dy.shape()[i] != 1)) axes.push_back(i);
  return reshape(axes.empty() ? dy : sum(dy, axes, true), shape);
}

}  // namespace ringtape
