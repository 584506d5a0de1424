#pragma once
#include <algorithm>
#include <type_traits>

#include "core/tensor.h"

// Which dtype the result of operands of several dtypes has: that of PyTorch (its "tensor attributes", type promotion).
// A tensor of rank 0, and less than that a plain number, changes the dtype of a tensor only if it is of a higher kind:
// truth values, whole numbers, floating point.
namespace ringtape {

// A plain number as it was written: x + 1 leaves whole numbers whole, x + 1.0 gives f32.
class Scalar {
 public:
  template <class T>
  requires std::is_arithmetic_v<T> Scalar(T value)
      : real_(double(value)), integer_(std::is_integral_v<T> ? int64_t(value) : 0),
        dtype_(std::is_same_v<T, bool> ? DType::b8
               : std::is_integral_v<T> ? DType::i64
                                       : DType::f32) {}

  DType dtype() const { return dtype_; }  // b8, i64 or f32
  double real() const { return real_; }
  int64_t integer() const { return integer_; }  // of a b8 or i64

 private:
  double real_;
  int64_t integer_;
  DType dtype_;
};

enum class DTypeKind : uint8_t { truth, integer, floating };
constexpr DTypeKind kind_of(DType d) {
  return is_float(d) ? DTypeKind::floating : d == DType::b8 ? DTypeKind::truth : DTypeKind::integer;
}

// The smallest dtype that holds both, or the floating one; f32 for f16 with bf16.
constexpr DType promote(DType a, DType b) {
  const DType low = std::min(a, b), high = std::max(a, b);
  return low == DType::f16 && high == DType::bf16 ? DType::f32 : high;
}

inline DType result_type(const Tensor& a, const Tensor& b) {
  if ((a.rank() == 0) == (b.rank() == 0)) return promote(a.dtype(), b.dtype());
  const DType array = (a.rank() > 0 ? a : b).dtype(), number = (a.rank() > 0 ? b : a).dtype();
  return kind_of(number) > kind_of(array) ? number : array;
}
inline DType result_type(const Tensor& a, Scalar b) {
  return kind_of(b.dtype()) > kind_of(a.dtype()) ? b.dtype() : a.dtype();
}

}  // namespace ringtape
