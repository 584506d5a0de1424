#include "kernels/binary.h"

#include "autograd/create.h"
#include "autograd/ops/common.h"
#include "autograd/tape.h"

namespace ringtape {
namespace {

using BinaryKernel = Kernel<void(View, View, View)>;
using BinaryGradient = Kernel<void(View, View, View, View)>;

struct Binary {
  const char* name;
  const BinaryKernel& forward;
  const BinaryGradient &backward_a, &backward_b;
  std::string_view da, db;  // their expressions
  bool keeps_inputs;
};

constexpr bool nothing = false, inputs = true;  // what a row says of its gradients' needs
#define X(op, y, da, db, needs, ...) \
  constexpr Binary k_##op{#op, op##_forward, op##_backward_a, op##_backward_b, #da, #db, needs};
RT_BINARY_OPS(X)
#undef X

// The kernel of an operation of whole numbers; null: it gives floating-point numbers.
const BinaryKernel* whole_kernel(std::string_view name) {
#define X(op, ...) \
  if (name == #op) return &op##_whole;
  RT_WHOLE_OPS(X)
#undef X
  return nullptr;
}

Tensor whole_result(const BinaryKernel& kernel, const Tensor& a, const Tensor& b, const Shape& shape, DType dtype) {
  Tensor y(shape, dtype, a.device());
  kernel(y, a, b);
  return y;
}

// The type of a number that takes part: also floating where whole operands have a floating-point result.
DType number_type(std::string_view name, DType result) {
  return is_float(result) || whole_kernel(name) ? result : DType::f32;
}

// y = a op b in `dtype`, the result type of operands that may be of another type.
Tensor apply_binary(const Binary& op, const Tensor& a, const Tensor& b, DType dtype) {
  const Shape shape = broadcast(a.shape(), b.shape(), op.name);
  if (!is_float(dtype)) {
    RT_CHECK_AS(DTypeError, dtype != DType::b8 || op.name != std::string_view("sub"),
                "sub: truth values are not subtracted; use logical_xor or not_equal");
    if (const BinaryKernel* kernel = whole_kernel(op.name)) return whole_result(*kernel, a, b, shape, dtype);
    dtype = DType::f32;
  }
  Tensor y(shape, dtype, a.device());
  op.forward(y, a, b);
  const bool keep = op.keeps_inputs;
  return record(
      op.name, {a, b}, y,
      [&op, keep, a = save(keep ? a : Tensor()), b = save(keep ? b : Tensor()), a_shape = a.shape(),
       b_shape = b.shape(), a_type = a.dtype(), b_type = b.dtype()](const Tensor& dy) -> Tensors {
        const auto gradient = [&](size_t input, const BinaryGradient& backward, std::string_view expression,
                                  const Shape& to, DType type) -> Tensor {
          if (!needs_grad(input)) return {};
          Tensor d = expression == "g" ? dy : empty_like(dy);
          if (expression != "g") backward(d, keep ? *a : dy, keep ? *b : dy, dy);
          return cast(sum_to(d, to), type);
        };
        return {gradient(0, op.backward_a, op.da, a_shape, a_type), gradient(1, op.backward_b, op.db, b_shape, b_type)};
      });
}

}  // namespace

#define X(op, y_expr, da_expr, db_expr, needs_, a_low, a_high, b_low, b_high)                                 \
  Tensor op(const Tensor& a, const Tensor& b) {                                                               \
    if (const CastTo to = autocast(#op, a, b)) return op(to(a), to(b));                                       \
    check_same_device(a, b, #op);                                                                             \
    return apply_binary(k_##op, a, b, result_type(a, b));                                                     \
  }                                                                                                           \
  Tensor op(const Tensor& a, Scalar b) {                                                                      \
    if (const CastTo to = autocast(#op, a)) return op(to(a), b);                                              \
    check_defined(a, #op);                                                                                    \
    const DType dtype = result_type(a, b);                                                                    \
    return apply_binary(k_##op, a, number_of(b, number_type(#op, dtype), a.device()), dtype);                 \
  }                                                                                                           \
  Tensor op(Scalar a, const Tensor& b) {                                                                      \
    if (const CastTo to = autocast(#op, b)) return op(a, to(b));                                              \
    check_defined(b, #op);                                                                                    \
    const DType dtype = result_type(b, a);                                                                    \
    return apply_binary(k_##op, number_of(a, number_type(#op, dtype), b.device()), b, dtype);                 \
  }                                                                                                           \
  static Tensor call_##op(const Tensors& t) { return op(t[0], t[1]); }                                        \
  static const RegisterOp register_##op{{                                                                     \
      .name = #op,                                                                                            \
      .samples = {{"same", {{{3, 5}, a_low, a_high}, {{3, 5}, b_low, b_high}}, call_##op},                    \
                  {"row", {{{3, 5}, a_low, a_high}, {{5}, b_low, b_high}}, call_##op},                        \
                  {"column", {{{3, 1}, a_low, a_high}, {{1, 5}, b_low, b_high}}, call_##op},                  \
                  {"number", {{{2, 3}, a_low, a_high}}, [](const Tensors& t) { return op(t[0], 1.75); }},     \
                  {"of_number", {{{2, 3}, b_low, b_high}}, [](const Tensors& t) { return op(0.75, t[0]); }},  \
                  {"large", {{{7, 1, 33}, a_low, a_high}, {{1, 31, 33}, b_low, b_high}}, call_##op},          \
                  {"empty", {{{0, 5}, a_low, a_high}, {{1, 5}, b_low, b_high}}, call_##op},                   \
                  {"empty_images", {{{0, 7, 40}, a_low, a_high}, {{40}, b_low, b_high}}, call_##op}},         \
      .workloads = {{"4096x4096", {{{4096, 4096}, a_low, a_high}, {{4096, 4096}, b_low, b_high}}, call_##op}, \
                    {"4096x4096+4096", {{{4096, 4096}, a_low, a_high}, {{4096}, b_low, b_high}}, call_##op}}, \
      .invalid = {{"shapes", {{{3, 5}, 1, 2}, {{3}, 1, 2}}, call_##op}},                                      \
      .tolerance = 8, /* gradients of what broadcasts are sums */                                             \
  }};
RT_BINARY_OPS(X)
#undef X

#define X(op, ...)                                                                                                  \
  Tensor op(const Tensor& a, const Tensor& b) {                                                                     \
    check_same_device(a, b, #op);                                                                                   \
    const DType dtype = result_type(a, b);                                                                          \
    RT_CHECK_AS(DTypeError, !is_float(dtype), #op, ": of whole numbers and truth values, got ", a.dtype(), " and ", \
                b.dtype());                                                                                         \
    return whole_result(op##_whole, a, b, broadcast(a.shape(), b.shape(), #op), dtype);                             \
  }                                                                                                                 \
  static Tensor call_##op(const Tensors& t) { return op(t[0], t[1]); }                                              \
  static const RegisterOp register_##op{{                                                                           \
      .name = #op,                                                                                                  \
      .samples = {{"index", {{{4, 6}, -9, 9, Fill::index}, {{6}, -9, 9, Fill::index}}, call_##op},                  \
                  {"mask", {{{4, 6}, 0, 1, Fill::mask}, {{4, 6}, 0, 1, Fill::mask}}, call_##op},                    \
                  {"empty", {{{0, 5}, 0, 9, Fill::index}, {{1, 5}, 0, 9, Fill::index}}, call_##op}},                \
      .invalid = {{"floats", {{{3}}, {{3}}}, call_##op}},                                                           \
      .differentiable = false,                                                                                      \
  }};
RT_BIT_OPS(X)
#undef X

Tensor bitwise_not(const Tensor& x) {
  RT_CHECK_AS(DTypeError, x.defined() && !is_float(x.dtype()), "bitwise_not: of whole numbers and truth values; got ",
              x.defined() ? name_of(x.dtype()) : "nothing");
  return x.dtype() == DType::b8 ? logical_not(x) : bitwise_xor(x, full({}, -1, DType::i64, x.device()));
}
static const RegisterOp register_bitwise_not{{
    .name = "bitwise_not",
    .samples = {{"index", {{{4, 6}, -9, 9, Fill::index}}, [](const Tensors& t) { return bitwise_not(t[0]); }},
                {"mask", {{{4, 6}, 0, 1, Fill::mask}}, [](const Tensors& t) { return bitwise_not(t[0]); }},
                {"empty", {{{0, 6}, -9, 9, Fill::index}}, [](const Tensors& t) { return bitwise_not(t[0]); }}},
    .invalid = {{"floats", {{{3}}}, [](const Tensors& t) { return bitwise_not(t[0]); }}},
    .differentiable = false,
}};

}  // namespace ringtape
