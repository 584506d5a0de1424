#include "kernels/binary.h"

#include "autograd/create.h"
#include "autograd/ops/common.h"

namespace ringtape {
namespace binary {

enum class Needs : uint8_t { nothing, inputs };

#define X(name, y, da, db, needs_, ...)                                                                 \
  struct name {                                                                                         \
    static constexpr Needs needs = Needs::needs_;                                                       \
    static constexpr bool da_is_g = std::string_view(#da) == "g", db_is_g = std::string_view(#db) == "g"; \
  };
RT_BINARY_OPS(X)
#undef X

}  // namespace binary

// A number as a tensor that broadcasts against `like`. Not rounded to 16 bits: kernels convert each operand separately.
static Tensor scalar(double value, const Tensor& like) {
  return full({}, value, like.dtype() == DType::f64 ? DType::f64 : DType::f32, like.device());
}

#define X(op, y_expr, da_expr, db_expr, needs_, a_low, a_high, b_low, b_high)                                 \
  static Tensor op##_unchecked(const Tensor& a, const Tensor& b, DType dtype) {                               \
    Tensor y(broadcast(a.shape(), b.shape(), #op), dtype, a.device());                                        \
    op##_forward(y, a, b);                                                                                    \
    static constexpr bool keep = binary::op::needs == binary::Needs::inputs;                                  \
    return record(#op, {a, b}, y,                                                                             \
                  [a = save(keep ? a : Tensor()), b = save(keep ? b : Tensor()), a_shape = a.shape(),         \
                   b_shape = b.shape()](const Tensor& dy) -> Tensors {                                        \
      const Tensor& va = keep ? *a : dy;                                                                      \
      const Tensor& vb = keep ? *b : dy;                                                                      \
      Tensor da, db;                                                                                          \
      if (needs_grad(0)) {                                                                                    \
        da = binary::op::da_is_g ? dy : empty_like(dy);                                                       \
        if (!binary::op::da_is_g) op##_backward_a(da, va, vb, dy);                                            \
        da = sum_to(da, a_shape);                                                                             \
      }                                                                                                       \
      if (needs_grad(1)) {                                                                                    \
        db = binary::op::db_is_g ? dy : empty_like(dy);                                                       \
        if (!binary::op::db_is_g) op##_backward_b(db, va, vb, dy);                                            \
        db = sum_to(db, b_shape);                                                                             \
      }                                                                                                       \
      return {da, db};                                                                                        \
    });                                                                                                       \
  }                                                                                                           \
  Tensor op(const Tensor& a, const Tensor& b) {                                                               \
    if (const CastTo to = autocast(#op, a, b)) return op(to(a), to(b));                                       \
    check_same(a, b, #op);                                                                                    \
    check_float(a, #op);                                                                                      \
    return op##_unchecked(a, b, a.dtype());                                                                   \
  }                                                                                                           \
  Tensor op(const Tensor& a, double b) {                                                                      \
    if (const CastTo to = autocast(#op, a)) return op(to(a), b);                                              \
    check_float(a, #op);                                                                                      \
    return op##_unchecked(a, scalar(b, a), a.dtype());                                                        \
  }                                                                                                           \
  Tensor op(double a, const Tensor& b) {                                                                      \
    if (const CastTo to = autocast(#op, b)) return op(a, to(b));                                              \
    check_float(b, #op);                                                                                      \
    return op##_unchecked(scalar(a, b), b, b.dtype());                                                        \
  }                                                                                                           \
  static Tensor call_##op(const Tensors& t) { return op(t[0], t[1]); }                                        \
  static const RegisterOp register_##op{{                                                                     \
      .name = #op,                                                                                            \
      .samples = {{"same", {{{3, 5}, a_low, a_high}, {{3, 5}, b_low, b_high}}, call_##op},                    \
                  {"row", {{{3, 5}, a_low, a_high}, {{5}, b_low, b_high}}, call_##op},                        \
                  {"column", {{{3, 1}, a_low, a_high}, {{1, 5}, b_low, b_high}}, call_##op},                  \
                  {"number", {{{2, 3}, a_low, a_high}}, [](const Tensors& t) { return op(t[0], 0.75); }},     \
                  {"of_number", {{{2, 3}, b_low, b_high}}, [](const Tensors& t) { return op(1.25, t[0]); }},  \
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

}  // namespace ringtape
