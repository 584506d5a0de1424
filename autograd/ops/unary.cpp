#include "kernels/unary.h"

#include "autograd/ops/common.h"

namespace ringtape {
namespace {

// f(x, p...) with the gradient of `backward`; whole numbers and truth values become f32.
template <class... P>
Tensor apply_unary(const char* name, const Kernel<void(View, View, P...)>& forward,
                   const Kernel<void(View, View, View, View, P...)>& backward, unary::Needs needs, const Tensor& given,
                   P... p) {
  using unary::Needs;
  const Tensor x = as_float(given, name);
  Tensor y = empty_like(x);
  forward(y, x, p...);
  const bool keep_x = needs != Needs::nothing && needs != Needs::y_alone;
  const bool keep_y = needs == Needs::y_alone || needs == Needs::x_and_y;
  const SavedTensor kept_x = needs == Needs::x_again ? save_value(x) : save(keep_x ? x : Tensor());
  describe([&] { return OpAttributes{OpAttribute{"number", double(p)}...}; });
  y = record(name, {x}, y, [&backward, p..., x = kept_x, y = save(keep_y ? y : Tensor())](const Tensor& dy) -> Tensors {
    Tensor dx = empty_like(dy);
    backward(dx, (*x).defined() ? *x : dy, (*y).defined() ? *y : dy, dy, p...);
    return {dx};
  });
  if (needs != Needs::x_again) return y;
  return recomputed(y, [&forward, p..., x = kept_x] {
    Tensor y = empty_like(*x);
    forward(y, *x, p...);
    return y;
  });
}

// The operations that leave whole numbers whole; undefined for the others.
Tensor of_integers(std::string_view name, const Tensor& x) {
  if (name == "neg") return sub(0, x);
  if (name == "abs") return x.dtype() == DType::u8 ? add(x, 0) : maximum(x, sub(0, x));
  if (name == "square") return mul(x, x);
  if (name == "relu") return maximum(x, 0);
  return {};
}

Tensor step_of_integers(std::string_view name, const Tensor& x) {
  return name == "sign" ? sub(cast(greater(x, 0), x.dtype()), cast(less(x, 0), x.dtype())) : add(x, 0);
}

Tensors no_slope(const Tensor& dy) { return {zeros(dy.shape(), dy.dtype(), dy.device())}; }

bool is_integer(const Tensor& x) { return x.defined() && kind_of(x.dtype()) == DTypeKind::integer; }

}  // namespace

#define RT_UNARY_RECORD(op, call, low, high, ...)                                                   \
  static Tensor call_##op(const Tensors& t) { return call; }                                        \
  static const RegisterOp register_##op {                                                           \
    {                                                                                               \
      .name = #op,                                                                                  \
      .samples = {{"odd", {{{3, 5}, low, high}}, call_##op},                                        \
                  {"large", {{{1, 67, 19}, low, high}}, call_##op},                                 \
                  {"scalar", {{{}, low, high}}, call_##op},                                         \
                  {"empty", {{{0, 3}, low, high}}, call_##op}},                                     \
      .workloads = {{"4096x4096", {{{4096, 4096}, low, high}}, call_##op}}, .kinks = {__VA_ARGS__}, \
    }                                                                                               \
  }

#define X(op, y_expr, dx_expr, needs_, low, high, ...)                         \
  Tensor op(const Tensor& x) {                                                 \
    if (const CastTo to = autocast(#op, x)) return op(to(x));                  \
    if (is_integer(x))                                                         \
      if (const Tensor y = of_integers(#op, x); y.defined()) return y;         \
    return apply_unary(#op, op##_forward, op##_backward, unary::op::needs, x); \
  }                                                                            \
  RT_UNARY_RECORD(op, op(t[0]), low, high, __VA_ARGS__);
RT_UNARY_OPS(X)
#undef X

#define X(op, y_expr, low, high)                                \
  Tensor op(const Tensor& given) {                              \
    if (is_integer(given)) return step_of_integers(#op, given); \
    const Tensor x = as_float(given, #op);                      \
    Tensor y = empty_like(x);                                   \
    op##_forward(y, x);                                         \
    return record(#op, {x}, y, no_slope);                       \
  }                                                             \
  RT_UNARY_RECORD(op, op(t[0]), low, high);
RT_STEP_OPS(X)
#undef X

#define X(op, y_expr, dx_expr, needs_, number, low, high, ...)                    \
  Tensor op(const Tensor& x, double p) {                                          \
    return apply_unary(#op, op##_forward, op##_backward, unary::op::needs, x, p); \
  }                                                                               \
  RT_UNARY_RECORD(op, op(t[0], 0.3), low, high, __VA_ARGS__);
RT_UNARY_NUMBER_OPS(X)
#undef X
#undef RT_UNARY_RECORD

// Compositions of comparisons.
Tensor logical_not(const Tensor& x) { return equal(x, 0); }
Tensor isnan(const Tensor& x) { return not_equal(x, x); }
Tensor isinf(const Tensor& x) { return equal(abs(x), std::numeric_limits<double>::infinity()); }
Tensor isfinite(const Tensor& x) { return less(abs(x), std::numeric_limits<double>::infinity()); }

#define RT_PREDICATE_RECORD(op)                                        \
  static Tensor call_##op(const Tensors& t) { return op(t[0]); }       \
  static const RegisterOp register_##op {                              \
    {                                                                  \
      .name = #op,                                                     \
      .samples = {{"odd", {{{3, 5}}}, call_##op},                      \
                  {"index", {{{4, 6}, 0, 3, Fill::index}}, call_##op}, \
                  {"empty", {{{0, 3}}}, call_##op}},                   \
      .differentiable = false,                                         \
    }                                                                  \
  }
RT_PREDICATE_RECORD(logical_not);
RT_PREDICATE_RECORD(isnan);
RT_PREDICATE_RECORD(isinf);
RT_PREDICATE_RECORD(isfinite);
#undef RT_PREDICATE_RECORD

}  // namespace ringtape
