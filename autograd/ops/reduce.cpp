#include "kernels/reduce.h"

#include "autograd/ops/common.h"

namespace ringtape {
namespace {

// The result's shape with reduced axes of size 1, and the shape that the caller gets.
struct Reduced {
  Shape keepdim, shape;
  int64_t count = 1;  // elements reduced into one

  Reduced(const Tensor& x, const Axes& axes, bool keep, const char* op) {
    check_float(x, op);
    bool gone[kMaxRank] = {};
    for (int a : axes) {
      const int axis = normalize_axis(a, x.rank(), op);
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

}  // namespace

Tensor sum(const Tensor& x, const Axes& axes, bool keepdim) {
  if (const CastTo to = autocast("sum", x)) return sum(to(x), axes, keepdim);
  const Reduced r(x, axes, keepdim, "sum");
  const Tensor y = r.empty(x);
  sum_forward(y, x);
  return record("sum", {x}, r.result(y), [shape = x.shape(), r](const Tensor& dy) -> Tensors {
    return {expand(reshape(dy, r.keepdim), shape)};
  });
}

Tensor mean(const Tensor& x, const Axes& axes, bool keepdim) {
  const Reduced r(x, axes, keepdim, "mean");
  const Tensor y = r.empty(x);
  mean_forward(y, x);
  return record("mean", {x}, r.result(y), [shape = x.shape(), r](const Tensor& dy) -> Tensors {
    return {expand(reshape(dy / double(r.count), r.keepdim), shape)};
  });
}

Tensor max(const Tensor& x, const Axes& axes, bool keepdim) {
  const Reduced r(x, axes, keepdim, "max");
  const Tensor y = r.empty(x);
  max_forward(y, x);
  return record("max", {x}, r.result(y), [x = save(x), y = save(y), r](const Tensor& dy) -> Tensors {
    Tensor dx = empty_like(*x);
    max_backward(dx, *x, *y, reshape(dy, r.keepdim));
    return {dx};
  });
}

Tensor var(const Tensor& x, const Axes& axes, bool keepdim, double correction) {
  if (const CastTo to = autocast("var", x)) return var(to(x), axes, keepdim, correction);
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

Tensor logsumexp(const Tensor& x, const Axes& axes, bool keepdim) {
  if (const CastTo to = autocast("logsumexp", x)) return logsumexp(to(x), axes, keepdim);
  const Reduced r(x, axes, keepdim, "logsumexp");
  const Tensor y = r.empty(x);
  logsumexp_forward(y, x);
  return record("logsumexp", {x}, r.result(y), [x = save(x), y = save(y), r](const Tensor& dy) -> Tensors {
    Tensor dx = empty_like(*x);
    logsumexp_backward(dx, *x, *y, reshape(dy, r.keepdim));
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
                  {"outer_axes", {{{3, 2, 5}, -2, 2}}, [](const Tensors& t) { return op(t[0], {0, 2}); }},         \
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
                  {"axis_twice", {{{3, 5}}}, [](const Tensors& t) { return op(t[0], {1, -1}); }}},                 \
      .tolerance = 8,                                                                                              \
    }                                                                                                              \
  }
RT_REDUCE_RECORD(sum);
RT_REDUCE_RECORD(mean);
RT_REDUCE_RECORD(max);
RT_REDUCE_RECORD(var, {"population", {{{4, 6}}}, [](const Tensors& t) { return var(t[0], {1}, false, 0); }});
RT_REDUCE_RECORD(logsumexp);
#undef RT_REDUCE_RECORD

}  // namespace ringtape
