#include "kernels/compare.h"

#include "autograd/create.h"
#include "autograd/ops/common.h"

namespace ringtape {

#define X(op, ...)                                                                                        \
  static Tensor op##_unchecked(const Tensor& a, const Tensor& b) {                                        \
    Tensor y(broadcast(a.shape(), b.shape(), #op), DType::b8, a.device());                                \
    op##_forward(y, a, b);                                                                                \
    return y;                                                                                             \
  }                                                                                                       \
  Tensor op(const Tensor& a, const Tensor& b) {                                                           \
    check_same(a, b, #op);                                                                                \
    return op##_unchecked(a, b);                                                                          \
  }                                                                                                       \
  Tensor op(const Tensor& a, double b) {                                                                  \
    RT_CHECK_AS(ShapeError, a.defined(), #op, ": an undefined tensor");                                   \
    const DType dtype = is_float(a.dtype()) ? a.dtype() : DType::f64;                                     \
    return op##_unchecked(a, full({}, b, dtype, a.device()));                                             \
  }                                                                                                       \
  static Tensor call_##op(const Tensors& t) { return op(t[0], t[1]); }                                    \
  static const RegisterOp register_##op{{                                                                 \
      .name = #op,                                                                                        \
      .samples = {{"real", {{{3, 5}}, {{3, 5}}}, call_##op},                                              \
                  {"index", {{{4, 6}, 0, 3, Fill::index}, {{6}, 0, 3, Fill::index}}, call_##op},          \
                  {"empty", {{{0, 5}}, {{1, 5}}}, call_##op}},                                            \
      .workloads = {{"4096x4096", {{{4096, 4096}}, {{4096, 4096}}}, call_##op}},                          \
      .invalid = {{"shapes", {{{3, 5}}, {{3}}}, call_##op}},                                              \
      .differentiable = false,                                                                            \
  }};
RT_COMPARE_OPS(X)
#undef X

}  // namespace ringtape
