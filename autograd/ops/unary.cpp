#include "kernels/unary.h"

#include "autograd/ops/common.h"

namespace ringtape {

#define X(op, y_expr, dx_expr, needs_, low, high, ...)                                                              \
  Tensor op(const Tensor& x) {                                                                                      \
    if (const CastTo to = autocast(#op, x)) return op(to(x));                                                       \
    check_float(x, #op);                                                                                            \
    Tensor y = empty_like(x);                                                                                       \
    op##_forward(y, x);                                                                                             \
    using unary::Needs;                                                                                             \
    constexpr Needs kept = unary::op::needs;                                                                        \
    const bool keep_x = kept == Needs::x_alone || kept == Needs::x_and_y;                                           \
    const bool keep_y = kept == Needs::y_alone || kept == Needs::x_and_y;                                           \
    return record(#op, {x}, y,                                                                                      \
                  [x = save(keep_x ? x : Tensor()), y = save(keep_y ? y : Tensor())](const Tensor& dy) -> Tensors { \
      Tensor dx = empty_like(dy);                                                                                   \
      op##_backward(dx, (*x).defined() ? *x : dy, (*y).defined() ? *y : dy, dy);                                    \
      return {dx};                                                                                                  \
    });                                                                                                             \
  }                                                                                                                 \
  static const RegisterOp register_##op{{                                                                           \
      .name = #op,                                                                                                  \
      .samples = {{"odd", {{{3, 5}, low, high}}, [](const Tensors& t) { return op(t[0]); }},                        \
                  {"large", {{{1, 67, 19}, low, high}}, [](const Tensors& t) { return op(t[0]); }},                 \
                  {"scalar", {{{}, low, high}}, [](const Tensors& t) { return op(t[0]); }},                         \
                  {"empty", {{{0, 3}, low, high}}, [](const Tensors& t) { return op(t[0]); }}},                     \
      .workloads = {{"4096x4096", {{{4096, 4096}, low, high}}, [](const Tensors& t) { return op(t[0]); }}},         \
      .kinks = {__VA_ARGS__},                                                                                       \
  }};
RT_UNARY_OPS(X)
#undef X

}  // namespace ringtape
