#include "kernels/reduce.h"

#include <cmath>

#include "autograd/ops/along.h"
#include "autograd/ops/common.h"

namespace ringtape {
namespace {

// The result's shape with reduced axes of size 1, and the shape that the caller gets.
struct Reduced {
  Shape keepdim, shape;
  int64_t count = 1;  // elements reduced into one

  Reduced(const Tensor& x, const Axes& axes, bool keep, const char* op) {
    bool gone[kMaxRank] = {};
    for (int a : axes) {
      const int axis = axis_of(x, a, op);
      RT_CHECK_AS(ShapeError, !gone[axis], op, ": axis ", a, " is given twice");
      gone[axis] = true;
    }
    if (axes.empty()) std::fill_n(gone, x.rank(), true);
    for (int i = 0; i < x.rank(); ++i) {
      keepdim.append(gone[i] ? 1 : x.shape()[i]);
      if (gone[i]) count *= x.shape()[i];
      if (keep || !gone[i]) shape.append(gone[i] ? 1 : x.shape()[i]);
    }
  }
  Tensor empty(const Tensor& x) const { return Tensor(keepdim, x.dtype(), x.device()); }
  Tensor result(const Tensor& y) const { return y.window(shape, contiguous_strides(shape)); }
};

// For the record that follows.
void describe_reduction(const Tensor& x, const Axes& axes, bool keepdim) {
  describe([&] {
    std::vector<int64_t> gone;
    for (const int axis : axes) gone.push_back(normalize_axis(axis, x.rank(), "reduction"));
    for (int64_t i = 0; axes.empty() && i < x.rank(); ++i) gone.push_back(i);
    std::sort(gone.begin(), gone.end());
    return OpAttributes{{"axes", gone}, {"keepdim", int64_t(keepdim)}};
  });
}

using Reduction = Kernel<void(View, View)>;

bool not_floating(const Tensor& x, const char* op) {
  check_defined(x, op);
  return !is_float(x.dtype());
}

// Whole numbers and truth values, reduced as i64.
Tensor reduce_integers(const char* op, const Reduction& kernel, const Tensor& given, const Axes& axes, bool keepdim) {
  const Tensor x = cast(given, DType::i64);
  const Reduced r(x, axes, keepdim, op);
  const Tensor y = r.empty(x);
  kernel(y, x);
  return r.result(y);
}

Tensor extreme(const char* op, const Reduction& forward, const Kernel<void(View, View, View, View)>& backward,
               const Tensor& x, const Axes& axes, bool keepdim) {
  if (not_floating(x, op)) {
    const Reduced r(x, axes, keepdim, op);
    RT_CHECK_AS(ShapeError, r.count > 0 || r.shape.size() == 0, op, ": of no whole numbers (shape ", x.shape(),
                ") there is none");
    return cast(reduce_integers(op, forward, x, axes, keepdim), x.dtype());
  }
  const Reduced r(x, axes, keepdim, op);
  const Tensor y = r.empty(x);
  forward(y, x);
  describe_reduction(x, axes, keepdim);
  return record(op, {x}, r.result(y), [&backward, x = save(x), y = save(y), r](const Tensor& dy) -> Tensors {
    Tensor dx = empty_like(*x);
    backward(dx, *x, *y, reshape(dy, r.keepdim));
    return {dx};
  });
}

}  // namespace

Tensor sum(const Tensor& x, const Axes& axes, bool keepdim) {
  if (const CastTo to = autocast("sum", x)) return sum(to(x), axes, keepdim);
  if (not_floating(x, "sum")) return reduce_integers("sum", sum_forward, x, axes, keepdim);
  const Reduced r(x, axes, keepdim, "sum");
  const Tensor y = r.empty(x);
  sum_forward(y, x);
  describe_reduction(x, axes, keepdim);
  return record("sum", {x}, r.result(y), [shape = x.shape(), r](const Tensor& dy) -> Tensors {
    return {expand(reshape(dy, r.keepdim), shape)};
  });
}

Tensor mean(const Tensor& x, const Axes& axes, bool keepdim) {
  const bool whole = not_floating(x, "mean");
  const Reduced r(x, axes, keepdim, "mean");
  if (whole) return sum(x, axes, keepdim) / double(r.count);
  const Tensor y = r.empty(x);
  mean_forward(y, x);
  describe_reduction(x, axes, keepdim);
  return record("mean", {x}, r.result(y), [shape = x.shape(), r](const Tensor& dy) -> Tensors {
    return {expand(reshape(dy / double(r.count), r.keepdim), shape)};
  });
}

Tensor max(const Tensor& x, const Axes& axes, bool keepdim) {
  return extreme("max", max_forward, max_backward, x, axes, keepdim);
}

Tensor min(const Tensor& x, const Axes& axes, bool keepdim) {
  return extreme("min", min_forward, min_backward, x, axes, keepdim);
}

Tensor prod(const Tensor& x, const Axes& axes, bool keepdim) {
  if (const CastTo to = autocast("prod", x)) return prod(to(x), axes, keepdim);
  if (x.defined() && is_float(x.dtype()) && size_of(x.dtype()) == 2)
    return cast(prod(cast(x, DType::f32), axes, keepdim), x.dtype());
  if (not_floating(x, "prod")) return reduce_integers("prod", prod_forward, x, axes, keepdim);
  const Reduced r(x, axes, keepdim, "prod");
  const Tensor y = r.empty(x);
  prod_forward(y, x);
  // The gradient is the product of the others: y / x, or where x is the only zero, that of all the others.
  describe_reduction(x, axes, keepdim);
  return record("prod", {x}, r.result(y), [x = save(x), y = save(y), axes, r](const Tensor& dy) -> Tensors {
    const Tensor is_zero = equal(*x, 0), zeros = sum(is_zero, axes, true);
    const Tensor others = where(is_zero, prod(where(is_zero, 1, *x), axes, true), 0);
    const Tensor slope = where(equal(zeros, 0), *y / *x, where(equal(zeros, 1), others, 0));
    return {reshape(dy, r.keepdim) * slope};
  });
}

// How many elements are not 0 (`of` true) or are 0, as i64.
static Tensor count(const char* op, bool of, const Tensor& x, const Axes& axes, bool keepdim) {
  check_defined(x, op);
  return reduce_integers(op, sum_forward, of ? not_equal(x, 0) : equal(x, 0), axes, keepdim);
}

Tensor any(const Tensor& x, const Axes& axes, bool keepdim) { return greater(count("any", true, x, axes, keepdim), 0); }

Tensor all(const Tensor& x, const Axes& axes, bool keepdim) { return equal(count("all", false, x, axes, keepdim), 0); }

Tensor var(const Tensor& x, const Axes& axes, bool keepdim, double correction) {
  if (const CastTo to = autocast("var", x)) return var(to(x), axes, keepdim, correction);
  check_float(x, "var");
  const Reduced r(x, axes, keepdim, "var");
  const Tensor y = r.empty(x), mean = r.empty(x);
  var_forward(y, mean, x, correction);
  const double scale = 2 / (double(r.count) - correction);
  return record("var", {x}, r.result(y), [x = save(x), mean = save(mean), r, scale](const Tensor& dy) -> Tensors {
    Tensor dx = empty_like(*x);
    var_backward(dx, *x, *mean, reshape(dy, r.keepdim), scale);
    return {dx};
  });
}

// The square root whose slope at 0 is 0.
static Tensor root(const Tensor& x) {
  const Tensor y = sqrt(x.detach());
  return record("sqrt", {x}, y,
                [y = save(y)](const Tensor& dy) -> Tensors { return {where(equal(*y, 0), 0, dy / (*y * 2))}; });
}

Tensor standard_deviation(const Tensor& x, const Axes& axes, bool keepdim, double correction) {
  if (const CastTo to = autocast("standard_deviation", x)) return standard_deviation(to(x), axes, keepdim, correction);
  check_float(x, "standard_deviation");
  if (size_of(x.dtype()) == 2)
    return cast(standard_deviation(cast(x, DType::f32), axes, keepdim, correction), x.dtype());
  Reduced(x, axes, keepdim, "standard_deviation");  // refuses by this name
  return root(var(x, axes, keepdim, correction));
}

Tensor norm(const Tensor& x, const Axes& axes, bool keepdim, double p) {
  if (const CastTo to = autocast("norm", x)) return norm(to(x), axes, keepdim, p);
  check_float(x, "norm");
  if (size_of(x.dtype()) == 2) return cast(norm(cast(x, DType::f32), axes, keepdim, p), x.dtype());
  const Reduced r(x, axes, keepdim, "norm");
  RT_CHECK_AS(UsageError, p > 0, "norm: of order ", p, "; expected 1, 2, infinity or another number above 0");
  if (p == 2) {
    const Tensor y = r.empty(x);
    norm_forward(y, x);
    return record("norm", {x}, r.result(y), [x = save(x), y = save(y), r](const Tensor& dy) -> Tensors {
      return {*x * where(equal(*y, 0), 0, reshape(dy, r.keepdim) / *y)};
    });
  }
  if (p == 1 || r.count == 0) return sum(abs(x), axes, keepdim);
  if (std::isinf(p)) return max(abs(x), axes, keepdim);
  const Tensor y = pow(sum(pow(abs(x.detach()), p), axes, true), 1 / p);
  return record("norm", {x}, r.result(y), [x = save(x), y = save(y), r, p](const Tensor& dy) -> Tensors {
    const Tensor slope = sign(*x) * pow(abs(*x) / *y, p - 1);
    return {where(logical_or(equal(*x, 0), equal(*y, 0)), 0, slope * reshape(dy, r.keepdim))};
  });
}

Tensor logsumexp(const Tensor& x, const Axes& axes, bool keepdim) {
  if (const CastTo to = autocast("logsumexp", x)) return logsumexp(to(x), axes, keepdim);
  check_float(x, "logsumexp");
  const Reduced r(x, axes, keepdim, "logsumexp");
  const Tensor y = r.empty(x), top(r.keepdim, x.dtype() == DType::f64 ? DType::f64 : DType::f32, x.device()),
               log_sum = empty_like(top);
  logsumexp_forward(y, top, log_sum, x);
  describe_reduction(x, axes, keepdim);
  return record("logsumexp", {x}, r.result(y),
                [x = save(x), top = save(top), log_sum = save(log_sum), r](const Tensor& dy) -> Tensors {
                  Tensor dx = empty_like(*x);
                  logsumexp_backward(dx, *x, *top, *log_sum, reshape(dy, r.keepdim));
                  return {dx};
                });
}

// One record per reduction, all of the same form.
#define RT_REDUCE_RECORD(op, ...)                                                                                  \
  static const RegisterOp register_##op {                                                                          \
    {                                                                                                              \
      .name = #op,                                                                                                 \
      .samples = {{"all", {{{3, 5}, -2, 2}}, [](const Tensors& t) { return op(t[0]); }},                           \
                  {"rows", {{{4, 37}, -2, 2}}, [](const Tensors& t) { return op(t[0], {1}); }},                    \
                  {"columns", {{{37, 4}, -2, 2}}, [](const Tensors& t) { return op(t[0], {0}); }},                 \
                  {"middle", {{{3, 7, 2}, -2, 2}}, [](const Tensors& t) { return op(t[0], {-2}, true); }},         \
                  {"outer_axes",                                                                                   \
                   {{{3, 2, 5}, -2, 2}},                                                                           \
                   [](const Tensors& t) {                                                                          \
                     return op(t[0], {0, 2});                                                                      \
                   }},                                                                                             \
                  {"large", {{{3, 700, 3}, -2, 2}}, [](const Tensors& t) { return op(t[0], {1}); }},               \
                  {"empty", {{{0, 3}, -2, 2}}, [](const Tensors& t) { return op(t[0], {0}); }},                    \
                  {"empty_all", {{{3, 0}, -2, 2}}, [](const Tensors& t) { return op(t[0]); }},                     \
                  {"empty_rows", {{{40, 0}, -2, 2}}, [](const Tensors& t) { return op(t[0], {1}); }},              \
                  {"empty_middle", {{{2, 0, 300}, -2, 2}}, [](const Tensors& t) { return op(t[0], {1}); }},        \
                  {"no_outputs", {{{0, 3}, -2, 2}}, [](const Tensors& t) { return op(t[0], {1}); }} __VA_OPT__(, ) \
                      __VA_ARGS__},                                                                                \
      .workloads = {{"all_4096x4096", {{{4096, 4096}}}, [](const Tensors& t) { return op(t[0]); }},                \
                    {"rows_4096x4096", {{{4096, 4096}}}, [](const Tensors& t) { return op(t[0], {1}); }},          \
                    {"columns_4096x4096", {{{4096, 4096}}}, [](const Tensors& t) { return op(t[0], {0}); }}},      \
      .invalid = {{"axis", {{{3, 5}}}, [](const Tensors& t) { return op(t[0], {2}); }},                            \
                  {"axis_twice",                                                                                   \
                   {{{3, 5}}},                                                                                     \
                   [](const Tensors& t) {                                                                          \
                     return op(t[0], {1, -1});                                                                     \
                   }}},                                                                                            \
      .tolerance = 8,                                                                                              \
    }                                                                                                              \
  }
RT_REDUCE_RECORD(sum);
RT_REDUCE_RECORD(mean);
RT_REDUCE_RECORD(max);
RT_REDUCE_RECORD(min);
RT_REDUCE_RECORD(prod);
RT_REDUCE_RECORD(var, {"population", {{{4, 6}}}, [](const Tensors& t) { return var(t[0], {1}, false, 0); }});
RT_REDUCE_RECORD(logsumexp);
RT_REDUCE_RECORD(standard_deviation);
RT_REDUCE_RECORD(norm, {"one", {{{4, 6}}}, [](const Tensors& t) { return norm(t[0], {1}, false, 1); }},
                 {"three", {{{4, 6}}}, [](const Tensors& t) { return norm(t[0], {1}, false, 3); }},
                 {"infinity", {{{4, 6}}}, [](const Tensors& t) { return norm(t[0], {1}, false, INFINITY); }});
#undef RT_REDUCE_RECORD

#define RT_TRUTH_RECORD(op)                                                                                       \
  static const RegisterOp register_##op {                                                                         \
    {                                                                                                             \
      .name = #op,                                                                                                \
      .samples = {{"mask", {{{3, 5}, 0, 1, Fill::mask}}, [](const Tensors& t) { return op(t[0], {1}); }},         \
                  {"index", {{{7, 3}, 0, 2, Fill::index}}, [](const Tensors& t) { return op(t[0], {0}); }},       \
                  {"real", {{{2, 3, 2}}}, [](const Tensors& t) { return op(t[0], {}, true); }},                   \
                  {"empty", {{{3, 0}}}, [](const Tensors& t) { return op(t[0], {1}); }}},                         \
      .invalid = {{"axis", {{{3, 5}}}, [](const Tensors& t) { return op(t[0], {2}); }}}, .differentiable = false, \
    }                                                                                                             \
  }
RT_TRUTH_RECORD(any);
RT_TRUTH_RECORD(all);
#undef RT_TRUTH_RECORD

}  // namespace ringtape
