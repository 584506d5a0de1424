#include "kernels/cross_entropy.h"

#include "autograd/create.h"
#include "autograd/ops/along.h"
#include "kernels/reduce.h"

namespace ringtape {
namespace {

// Weights of classes, contiguous; undefined stays so.
Tensor class_weights(const char* op, const Tensor& w, const Tensor& logits) {
  if (!w.defined()) return w;
  const Shape wanted{logits.dim(-1)};
  RT_CHECK_AS(ShapeError, w.shape() == wanted, op, ": expected a weight for each class, ", wanted, ", got ", w.shape());
  RT_CHECK_AS(DTypeError, w.dtype() == wide_dtype(logits), op, ": logits and weight of ", logits.dtype(), " and ",
              w.dtype(), "; weight must be ", wide_dtype(logits), ": convert it with cast(x, dtype)");
  RT_CHECK_AS(DeviceError, w.device() == logits.device(), op, ": logits and weight on ", logits.device(), " and ",
              w.device(), "; move one with to(x, device)");
  return contiguous(w.detach());
}

// logits (..., C) and labels (...), and the number of samples.
int64_t check_labels(const char* op, const Tensor& logits, const Tensor& labels) {
  check_float(logits, op);
  RT_CHECK_AS(ShapeError,
              labels.defined() && logits.rank() > 0 && logits.shape().without(logits.rank() - 1) == labels.shape(), op,
              ": expected logits (..., C), the classes last, and labels (...), got ", logits.shape(), " and ",
              labels.defined() ? labels.shape().str() : "none");
  RT_CHECK_AS(DTypeError, labels.dtype() == DType::i64 || labels.dtype() == DType::i32, op, ": labels are ",
              labels.dtype(), ", not i64 or i32; convert them with cast(labels, DType::i64)");
  RT_CHECK_AS(DeviceError, labels.device() == logits.device(), op, ": logits and labels on ", logits.device(), " and ",
              labels.device(), "; move one with to(x, device)");
  return labels.size();
}

void check_reduction(const char* op, LossReduction reduction) {
  RT_CHECK_AS(UsageError, reduction != LossReduction::batch_mean, op,
              ": no reduction batch_mean; use mean, over the samples");
}

// (..., C) as rows of classes.
Tensor as_rows_of_classes(const Tensor& x, int64_t rows) { return x.window({rows, x.dim(-1)}, {x.dim(-1), 1}); }

// The value and what the mean was divided by (none for a sum), from loss (2, N): losses and their shares of a mean.
struct ReducedLoss {
  Tensor y, total;
};
ReducedLoss reduce_losses(const Tensor& loss, const Shape& shape, LossReduction reduction) {
  const int64_t n = loss.dim(1);
  if (reduction == LossReduction::none) return {loss.window(shape, contiguous_strides(shape)), {}};
  const Tensor y({reduction == LossReduction::mean ? 2 : 1}, loss.dtype(), loss.device());
  if (reduction == LossReduction::mean) weighted_mean(y, loss);
  else sum_forward(y, loss.window({n}, {1}));
  return {y.window({}, {}), reduction == LossReduction::mean ? y.window({1}, {1}, 1) : Tensor{}};
}

// dy of shape () or of the losses as one number for each of n samples.
Tensor loss_gradients(const Tensor& dy, int64_t n) {
  return dy.size() == n && dy.rank() > 0 ? reshape(dy, {n}) : expand(reshape(dy, {1}), {n});
}

// The mean over the samples is that of their losses.
Tensor soft_cross_entropy(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options) {
  if (autocast_dtype() != DType::f32 && logits.dtype() != targets.dtype() && wide_dtype(logits) == DType::f32 &&
      wide_dtype(targets) == DType::f32)  // 16-bit logits of the network, and targets of the data
    return soft_cross_entropy(cast(logits, DType::f32), cast(targets, DType::f32), options);
  check_same(logits, targets, "cross_entropy");
  RT_CHECK_AS(ShapeError, logits.rank() > 0 && logits.shape() == targets.shape(),
              "cross_entropy: expected targets like the logits, (..., C), got ", targets.shape(), " and ",
              logits.shape());
  RT_CHECK_AS(UsageError, options.ignore_index < 0,
              "cross_entropy: targets that are probabilities have no ignore_index, got ", options.ignore_index);
  const Tensor x = contiguous(logits), q = contiguous(targets), w = class_weights("cross_entropy", options.weight, x);
  const Shape samples = x.shape().without(x.rank() - 1);
  const int64_t n = samples.size();
  const Tensor loss({n}, wide_dtype(x), x.device()), norms({n, 2}, loss.dtype(), x.device());
  CrossEntropyRule rule{.smoothing = options.label_smoothing};
  soft_cross_entropy_forward(loss, norms, as_rows_of_classes(x, n), as_rows_of_classes(q, n), w, rule);
  Tensor y = loss.window(samples, contiguous_strides(samples));
  if (options.reduction != LossReduction::none) {
    y = Tensor(Shape{1}, loss.dtype(), x.device());
    options.reduction == LossReduction::mean ? mean_forward(y, loss) : sum_forward(y, loss);
    y = y.window({}, {});
  }
  if (options.reduction == LossReduction::mean) rule.scale = 1 / double(n);
  return record("cross_entropy", {x, q}, y,
                [x = save(x), q = save(q), w = save(w), norms = save(norms), rule, n](const Tensor& dy) -> Tensors {
                  const Tensor dx = empty_like(*x), dq = needs_grad(1) ? empty_like(*q) : Tensor{};
                  const View to = dq.defined() ? View(as_rows_of_classes(dq, n)) : View{};
                  soft_cross_entropy_backward(as_rows_of_classes(dx, n), to, as_rows_of_classes(*x, n), *norms,
                                              as_rows_of_classes(*q, n), *w, loss_gradients(dy, n), rule);
                  return {dx, dq};
                });
}

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& options) {
  check_float(logits, "cross_entropy");
  const double smoothing = options.label_smoothing;
  RT_CHECK_AS(UsageError, smoothing >= 0 && smoothing < 1, "cross_entropy: label_smoothing ", smoothing,
              " is not in [0, 1)");
  check_reduction("cross_entropy", options.reduction);
  if (labels.defined() && is_float(labels.dtype())) return soft_cross_entropy(logits, labels, options);
  const int64_t n = check_labels("cross_entropy", logits, labels);
  const Tensor x = contiguous(logits), index = as_index(labels, "cross_entropy"),
               w = class_weights("cross_entropy", options.weight, x);
  const Tensor loss({2, n}, wide_dtype(x), x.device()), norms({n, 2}, loss.dtype(), x.device());
  const CrossEntropyRule rule{smoothing, options.ignore_index};
  cross_entropy_forward(loss, norms, as_rows_of_classes(x, n), index, w, rule);
  const auto [y, total] = reduce_losses(loss, labels.shape(), options.reduction);
  return record("cross_entropy", {x}, y,
                [x = save(x), norms = save(norms), index = save(index), w = save(w), total = save(total), rule,
                 n](const Tensor& dy) -> Tensors {
                  const Tensor dx = empty_like(*x);
                  cross_entropy_backward(as_rows_of_classes(dx, n), as_rows_of_classes(*x, n), *norms, *index, *w,
                                         loss_gradients(dy, n), *total, rule);
                  return {dx};
                });
}

Tensor cross_entropy(const Tensor& logits, const Tensor& labels, double label_smoothing, LossReduction reduction) {
  return cross_entropy(logits, labels, CrossEntropyOptions{.label_smoothing = label_smoothing, .reduction = reduction});
}

Tensor nll_loss(const Tensor& log_p, const Tensor& labels, const NllOptions& options) {
  check_reduction("nll_loss", options.reduction);
  const int64_t n = check_labels("nll_loss", log_p, labels);
  const Tensor x = contiguous(log_p), index = as_index(labels, "nll_loss"),
               w = class_weights("nll_loss", options.weight, x);
  const Tensor loss({2, n}, wide_dtype(x), x.device());
  const CrossEntropyRule rule{.ignored = options.ignore_index};
  nll_forward(loss, as_rows_of_classes(x, n), index, w, rule);
  const auto [y, total] = reduce_losses(loss, labels.shape(), options.reduction);
  return record("nll_loss", {x}, y,
                [shape = x.shape(), dtype = x.dtype(), index = save(index), w = save(w), total = save(total), rule,
                 n](const Tensor& dy) -> Tensors {
                  const Tensor dx(shape, dtype, dy.device());
                  nll_backward(as_rows_of_classes(dx, n), *index, *w, loss_gradients(dy, n), *total, rule);
                  return {dx};
                });
}

static Tensor call_cross_entropy(const Tensors& t) { return cross_entropy(t[0], t[1]); }
// With weights 0.5, 0.75 ... of the classes.
template <LossReduction reduction> static Tensor with_weights(const Tensors& t) {
  const Tensor w = cast(arange(t[0].dim(-1), DType::i64, t[0].device()), wide_dtype(t[0])) * 0.25 + 0.5;
  return cross_entropy(t[0], t[1], {.label_smoothing = 0.2, .weight = w, .reduction = reduction});
}
static const RegisterOp register_cross_entropy{{
    .name = "cross_entropy",
    .samples = {{"mean", {{{4, 7}, -3, 3}, {{4}, 0, 7, Fill::index}}, call_cross_entropy},
                {"per_sample",
                 {{{5, 19}, -3, 3}, {{5}, 0, 19, Fill::index}},
                 [](const Tensors& t) { return cross_entropy(t[0], t[1], 0, LossReduction::none); }},
                {"smoothed",
                 {{{3, 10}, -3, 3}, {{3}, 0, 10, Fill::index}},
                 [](const Tensors& t) { return cross_entropy(t[0], t[1], 0.1); }},
                {"smoothed_per_sample",
                 {{{2, 33}, -9, 9}, {{2}, 0, 33, Fill::index}},
                 [](const Tensors& t) { return cross_entropy(t[0], t[1], 0.2, LossReduction::none); }},
                {"one_class", {{{3, 1}}, {{3}, 0, 1, Fill::index}}, call_cross_entropy},
                {"empty_mean", {{{0, 4}}, {{0}, 0, 4, Fill::index}}, call_cross_entropy},
                {"empty",
                 {{{0, 4}}, {{0}, 0, 4, Fill::index}},
                 [](const Tensors& t) { return cross_entropy(t[0], t[1], 0, LossReduction::none); }},
                {"one_sample", {{{5}}, {{}, 0, 5, Fill::index}}, call_cross_entropy},
                {"images", {{{2, 3, 3, 5}, -3, 3}, {{2, 3, 3}, 0, 5, Fill::index}}, with_weights<LossReduction::mean>},
                {"ignored",
                 {{{6, 4}, -3, 3}, {{6}, 0, 4, Fill::index}},
                 [](const Tensors& t) {
                   return cross_entropy(t[0], t[1], {.label_smoothing = 0.1, .ignore_index = 2});
                 }},
                {"weights_sum", {{{2, 4, 5}, -3, 3}, {{2, 4}, 0, 5, Fill::index}}, with_weights<LossReduction::sum>},
                {"weights_none", {{{2, 4, 5}, -3, 3}, {{2, 4}, 0, 5, Fill::index}}, with_weights<LossReduction::none>},
                {"soft", {{{4, 7}, -3, 3}, {{4, 7}, 0, 1}}, call_cross_entropy},
                {"soft_weights", {{{2, 3, 5}, -3, 3}, {{2, 3, 5}, 0, 1}}, with_weights<LossReduction::sum>},
                {"soft_none", {{{3, 19}, -3, 3}, {{3, 19}, 0, 1}}, with_weights<LossReduction::none>},
                {"soft_empty", {{{0, 4}}, {{0, 4}}}, call_cross_entropy}},
    .workloads = {{"8192x1000", {{{8192, 1000}}, {{8192}, 0, 1000, Fill::index}}, call_cross_entropy}},
    .invalid = {{"counts", {{{4, 7}}, {{3}, 0, 7, Fill::index}}, call_cross_entropy},
                {"scalar", {{{}}, {{}, 0, 1, Fill::index}}, call_cross_entropy},
                {"soft_shape", {{{4, 7}}, {{4, 6}}}, call_cross_entropy},
                {"soft_ignore",
                 {{{4, 7}}, {{4, 7}}},
                 [](const Tensors& t) { return cross_entropy(t[0], t[1], {.ignore_index = 0}); }},
                {"weight",
                 {{{4, 7}}, {{4}, 0, 7, Fill::index}, {{6}}},
                 [](const Tensors& t) { return cross_entropy(t[0], t[1], {.weight = t[2]}); }},
                {"batch_mean",
                 {{{4, 7}}, {{4}, 0, 7, Fill::index}},
                 [](const Tensors& t) { return cross_entropy(t[0], t[1], 0, LossReduction::batch_mean); }},
                {"label", {{{4, 7}}, {{4}, 7, 8, Fill::index}}, call_cross_entropy},
                {"label_dtype", {{{4, 7}}, {{4}, 0, 1, Fill::mask}}, call_cross_entropy},
                {"smoothing",
                 {{{4, 7}}, {{4}, 0, 7, Fill::index}},
                 [](const Tensors& t) { return cross_entropy(t[0], t[1], 1.0); }}},
    .tolerance = 4,
}};

static Tensor call_nll_loss(const Tensors& t) { return nll_loss(t[0], t[1]); }
static const RegisterOp register_nll_loss{{
    .name = "nll_loss",
    .samples = {{"mean", {{{4, 7}, -3, 0}, {{4}, 0, 7, Fill::index}}, call_nll_loss},
                {"images", {{{2, 3, 3, 5}, -3, 0}, {{2, 3, 3}, 0, 5, Fill::index}}, call_nll_loss},
                {"ignored_weights",
                 {{{6, 4}, -3, 0}, {{6}, 0, 4, Fill::index}},
                 [](const Tensors& t) {
                   const Tensor w = cast(arange(4, DType::i64, t[0].device()), wide_dtype(t[0])) + 0.5;
                   return nll_loss(t[0], t[1], {.ignore_index = 2, .weight = w});
                 }},
                {"sum",
                 {{{5, 3}, -3, 0}, {{5}, 0, 3, Fill::index}},
                 [](const Tensors& t) { return nll_loss(t[0], t[1], {.reduction = LossReduction::sum}); }},
                {"none",
                 {{{5, 3}, -3, 0}, {{5}, 0, 3, Fill::index}},
                 [](const Tensors& t) { return nll_loss(t[0], t[1], {.reduction = LossReduction::none}); }},
                {"empty", {{{0, 4}}, {{0}, 0, 4, Fill::index}}, call_nll_loss}},
    .workloads = {{"8192x1000", {{{8192, 1000}}, {{8192}, 0, 1000, Fill::index}}, call_nll_loss}},
    .invalid = {{"label", {{{4, 7}}, {{4}, 7, 8, Fill::index}}, call_nll_loss},
                {"counts", {{{4, 7}}, {{3}, 0, 7, Fill::index}}, call_nll_loss}},
    .tolerance = 4,
}};

}  // namespace ringtape
