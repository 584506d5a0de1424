#include "kernels/cross_entropy.h"

#include "autograd/ops/common.h"
#include "kernels/copy.h"
#include "kernels/reduce.h"

namespace ringtape {

Tensor cross_entropy(const Tensor& logits, const Tensor& labels, double smoothing, LossReduction reduction) {
  check_float(logits, "cross_entropy");
  RT_CHECK_AS(ShapeError, logits.rank() == 2 && labels.rank() == 1 && logits.shape()[0] == labels.shape()[0],
              "cross_entropy: expected logits (N, C) and labels (N), got ", logits.shape(), " and ", labels.shape());
  RT_CHECK_AS(DTypeError, labels.dtype() == DType::i64, "cross_entropy: labels are ", labels.dtype(), ", not i64");
  RT_CHECK_AS(UsageError, smoothing >= 0 && smoothing < 1, "cross_entropy: label_smoothing ", smoothing,
              " is not in [0, 1)");
  const Tensor rows = contiguous(logits), index = contiguous(labels);
  const int64_t n = rows.shape()[0];
  const DType accumulate = rows.dtype() == DType::f64 ? DType::f64 : DType::f32;
  Tensor loss({n}, accumulate, rows.device()), norms({n, 2}, accumulate, rows.device());
  cross_entropy_forward(loss, norms, rows, index, smoothing);

  const bool average = reduction == LossReduction::mean;
  Tensor y = loss;
  if (average) {
    y = Tensor(Shape{1}, accumulate, rows.device());
    mean_forward(y, loss);
    y = y.window({}, {});
  }
  const double scale = average ? 1 / double(n) : 1;
  const auto backward = [x = save(rows), norms = save(norms), index = save(index), smoothing,
                         scale](const Tensor& dy) -> Tensors {
    Tensor dx = empty_like(*x);
    cross_entropy_backward(dx, *x, *norms, *index, expand(dy, {dx.shape()[0]}), smoothing, scale);
    return {dx};
  };
  return record("cross_entropy", {rows}, y, backward);
}

static Tensor call_cross_entropy(const Tensors& t) { return cross_entropy(t[0], t[1]); }
static const RegisterOp register_cross_entropy{{
    .name = "cross_entropy",
    .samples = {{"mean", {{{4, 7}, -3, 3}, {{4}, 0, 7, Fill::index}}, call_cross_entropy},
                {"per_sample", {{{5, 19}, -3, 3}, {{5}, 0, 19, Fill::index}},
                 [](const Tensors& t) { return cross_entropy(t[0], t[1], 0, LossReduction::none); }},
                {"smoothed", {{{3, 10}, -3, 3}, {{3}, 0, 10, Fill::index}},
                 [](const Tensors& t) { return cross_entropy(t[0], t[1], 0.1); }},
                {"smoothed_per_sample", {{{2, 33}, -9, 9}, {{2}, 0, 33, Fill::index}},
                 [](const Tensors& t) { return cross_entropy(t[0], t[1], 0.2, LossReduction::none); }},
                {"one_class", {{{3, 1}}, {{3}, 0, 1, Fill::index}}, call_cross_entropy},
                {"empty_mean", {{{0, 4}}, {{0}, 0, 4, Fill::index}}, call_cross_entropy},
                {"empty", {{{0, 4}}, {{0}, 0, 4, Fill::index}},
                 [](const Tensors& t) { return cross_entropy(t[0], t[1], 0, LossReduction::none); }}},
    .workloads = {{"8192x1000", {{{8192, 1000}}, {{8192}, 0, 1000, Fill::index}}, call_cross_entropy}},
    .invalid = {{"counts", {{{4, 7}}, {{3}, 0, 7, Fill::index}}, call_cross_entropy},
                {"label", {{{4, 7}}, {{4}, 7, 8, Fill::index}}, call_cross_entropy},
                {"label_dtype", {{{4, 7}}, {{4}}}, call_cross_entropy},
                {"smoothing", {{{4, 7}}, {{4}, 0, 7, Fill::index}},
                 [](const Tensors& t) { return cross_entropy(t[0], t[1], 1.0); }}},
    .tolerance = 4,
}};

}  // namespace ringtape
