#include "kernels/compare.h"

#include "autograd/create.h"
#include "autograd/ops/common.h"

namespace ringtape {
namespace {

using Comparison = Kernel<void(View, View, View)>;

Tensor compared(const char* name, const Comparison& kernel, const Tensor& a, const Tensor& b) {
  Tensor y(broadcast(a.shape(), b.shape(), name), DType::b8, a.device());
  kernel(y, a, b);
  return y;
}

// Whole numbers beside floating ones are compared as these; f16 with bf16 as f32.
Tensor compare(const char* name, const Comparison& kernel, const Tensor& a, const Tensor& b) {
  check_same_device(a, b, name);
  const DType dtype = result_type(a, b);
  const auto like = [dtype](const Tensor& x) { return is_float(dtype) ? cast(x.detach(), dtype) : x; };
  return compared(name, kernel, like(a), like(b));
}

Tensor compare(const char* name, const Comparison& kernel, const Tensor& a, Scalar b) {
  check_defined(a, name);
  if (is_float(a.dtype())) return compared(name, kernel, a, full({}, b.real(), a.dtype(), a.device()));
  if (b.dtype() != DType::f32)
    return compared(name, kernel, a, to(from_host(std::vector<int64_t>{b.integer()}, {}), a.device()));
  return compared(name, kernel, cast(a, DType::f64), full({}, b.real(), DType::f64, a.device()));
}

}  // namespace

#define X(op, ...)                                                                               \
  Tensor op(const Tensor& a, const Tensor& b) { return compare(#op, op##_forward, a, b); }       \
  Tensor op(const Tensor& a, Scalar b) { return compare(#op, op##_forward, a, b); }              \
  static Tensor call_##op(const Tensors& t) { return op(t[0], t[1]); }                           \
  static const RegisterOp register_##op{{                                                        \
      .name = #op,                                                                               \
      .samples = {{"real", {{{3, 5}}, {{3, 5}}}, call_##op},                                     \
                  {"index", {{{4, 6}, 0, 3, Fill::index}, {{6}, 0, 3, Fill::index}}, call_##op}, \
                  {"mixed", {{{4, 6}, 0, 3, Fill::index}, {{6}, 0, 3}}, call_##op},              \
                  {"empty", {{{0, 5}}, {{1, 5}}}, call_##op}},                                   \
      .workloads = {{"4096x4096", {{{4096, 4096}}, {{4096, 4096}}}, call_##op}},                 \
      .invalid = {{"shapes", {{{3, 5}}, {{3}}}, call_##op}},                                     \
      .differentiable = false,                                                                   \
  }};
RT_COMPARE_OPS(X)
#undef X

}  // namespace ringtape
