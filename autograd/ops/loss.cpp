#include "kernels/loss.h"

#include "autograd/ops/common.h"

namespace ringtape {
// A factor of each element, made as large as x; undefined stays so.
static Tensor loss_factor(const char* op, const char* what, const Tensor& w, const Tensor& x) {
  if (!w.defined()) return w;
  check_same(x, w, op);
  bool fits = w.rank() <= x.rank();
  for (int i = 1; fits && i <= w.rank(); ++i) fits = w.dim(-i) == 1 || w.dim(-i) == x.dim(-i);
  RT_CHECK_AS(ShapeError, fits, op, ": a ", what, " of shape ", w.shape(), " does not broadcast to x ", x.shape());
  return expand(w.detach(), x.shape());
}

static Tensor elementwise_loss(const char* op, LossRule rule, const Tensor& x, const Tensor& target,
                               LossReduction reduction, const Tensor& w = {}, const Tensor& q = {}) {
  check_float(x, op);
  check_same(x, target, op);
  RT_CHECK_AS(ShapeError, x.shape() == target.shape(), op, ": expected x and a target of one shape, got ", x.shape(),
              " and ", target.shape(), "; make them equal with expand(x, shape)");
  RT_CHECK_AS(ShapeError, reduction != LossReduction::batch_mean || x.rank() > 0, op,
              ": batch_mean needs an axis of samples, got x ()");
  if (reduction == LossReduction::mean) rule.divisor = double(x.size());
  if (reduction == LossReduction::batch_mean) rule.divisor = double(x.dim(0));
  const Tensor y(reduction == LossReduction::none ? x.shape() : Shape{}, wide_dtype(x), x.device());
  loss_forward(y, x, target, w, q, rule);
  return record(op, {x, target}, y,
                [x = save(x), t = save(target), w = save(w), q = save(q), rule](const Tensor& dy) -> Tensors {
                  const Tensor from = expand(dy, (*x).shape());
                  const auto gradient = [&](size_t input, LossPart part) {
                    if (!needs_grad(input)) return Tensor{};
                    const Tensor to((*x).shape(), (*x).dtype(), (*x).device());
                    loss_backward(to, from, *x, *t, *w, *q, rule, part);
                    return to;
                  };
                  return {gradient(0, LossPart::to_input), gradient(1, LossPart::to_target)};
                });
}

Tensor mse_loss(const Tensor& x, const Tensor& target, LossReduction reduction) {
  if (const CastTo to = autocast("mse_loss", x, target)) return mse_loss(to(x), to(target), reduction);
  return elementwise_loss("mse_loss", {Loss::mse}, x, target, reduction);
}

Tensor l1_loss(const Tensor& x, const Tensor& target, LossReduction reduction) {
  if (const CastTo to = autocast("l1_loss", x, target)) return l1_loss(to(x), to(target), reduction);
  return elementwise_loss("l1_loss", {Loss::l1}, x, target, reduction);
}

Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, double beta, LossReduction reduction) {
  if (const CastTo to = autocast("smooth_l1_loss", x, target))
    return smooth_l1_loss(to(x), to(target), beta, reduction);
  RT_CHECK_AS(UsageError, beta >= 0, "smooth_l1_loss: beta ", beta, " is below 0");
  return elementwise_loss("smooth_l1_loss", {Loss::smooth_l1, beta}, x, target, reduction);
}

Tensor huber_loss(const Tensor& x, const Tensor& target, double delta, LossReduction reduction) {
  if (const CastTo to = autocast("huber_loss", x, target)) return huber_loss(to(x), to(target), delta, reduction);
  RT_CHECK_AS(UsageError, delta > 0, "huber_loss: delta ", delta, " is not above 0");
  return elementwise_loss("huber_loss", {Loss::huber, delta}, x, target, reduction);
}

Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target, const BceOptions& options) {
  constexpr auto op = "binary_cross_entropy_with_logits";
  if (const CastTo to = autocast(op, x, target)) {
    const auto cast_factor = [&](const Tensor& w) { return w.defined() ? to(w.detach()) : w; };
    return binary_cross_entropy_with_logits(
        to(x), to(target), {cast_factor(options.weight), cast_factor(options.pos_weight), options.reduction});
  }
  check_float(x, op);
  return elementwise_loss(op, {Loss::bce, 1}, x, target, options.reduction,
                          loss_factor(op, "weight", options.weight, x),
                          loss_factor(op, "pos_weight", options.pos_weight, x));
}

Tensor kl_div(const Tensor& x, const Tensor& target, const KlDivOptions& options) {
  if (const CastTo to = autocast("kl_div", x, target)) return kl_div(to(x), to(target), options);
  return elementwise_loss("kl_div", {options.log_target ? Loss::kl_of_log : Loss::kl}, x, target, options.reduction);
}

using LossCall = Tensor (*)(const Tensor& x, const Tensor& target, LossReduction reduction);
// A loss of x and a target in [low, high), reduced in each way.
static std::vector<Sample> loss_samples(double low, double high, LossCall f) {
  const auto sample = [&](const char* tag, const Shape& shape, LossReduction r) {
    return Sample{tag, {{shape, -3, 3}, {shape, low, high}}, [f, r](const Tensors& t) { return f(t[0], t[1], r); }};
  };
  return {sample("mean", {3, 37}, LossReduction::mean),      sample("sum", {2, 5, 3}, LossReduction::sum),
          sample("none", {5, 19}, LossReduction::none),      sample("batch_mean", {4, 6}, LossReduction::batch_mean),
          sample("number", {}, LossReduction::mean),         sample("long", {1201}, LossReduction::mean),
          sample("empty_mean", {0, 4}, LossReduction::mean), sample("empty", {0, 4}, LossReduction::none)};
}
static std::vector<Sample> loss_workloads(double low, double high, LossCall f) {
  return {{"8192x1000", {{{8192, 1000}}, {{8192, 1000}, low, high}}, [f](const Tensors& t) {
             return f(t[0], t[1], LossReduction::mean);
           }}};
}
static std::vector<Sample> loss_refusals(LossCall f) {
  return {{"shapes", {{{3, 5}}, {{3, 1}}}, [f](const Tensors& t) { return f(t[0], t[1], LossReduction::mean); }},
          {"no_samples", {{{}}, {{}}}, [f](const Tensors& t) { return f(t[0], t[1], LossReduction::batch_mean); }}};
}
static Op loss_op(const char* name, double low, double high, LossCall f) {
  return {.name = name,
          .samples = loss_samples(low, high, f),
          .workloads = loss_workloads(low, high, f),
          .invalid = loss_refusals(f),
          .tolerance = 8};
}
static Op with_samples(Op op, const Samples& more) {
  op.samples.insert(op.samples.end(), more.begin(), more.end());
  return op;
}

static const RegisterOp register_mse_loss{loss_op("mse_loss", -3, 3, mse_loss)};
static const RegisterOp register_l1_loss{loss_op("l1_loss", -3, 3, l1_loss)};
static const RegisterOp register_smooth_l1_loss{
    loss_op("smooth_l1_loss", -3, 3, [](auto& x, auto& t, auto r) { return smooth_l1_loss(x, t, 1.5, r); })};
static const RegisterOp register_huber_loss{
    loss_op("huber_loss", -3, 3, [](auto& x, auto& t, auto r) { return huber_loss(x, t, 1.5, r); })};
// Factors come from integers: they have no gradient.
static Tensor weighted_bce(const Tensors& t, LossReduction r) {
  return binary_cross_entropy_with_logits(
      t[0], t[1], {.weight = cast(t[2], t[0].dtype()), .pos_weight = cast(t[3], t[0].dtype()), .reduction = r});
}
static const RegisterOp register_bce{with_samples(
    loss_op("binary_cross_entropy_with_logits", 0, 1,
            [](auto& x, auto& t, auto r) { return binary_cross_entropy_with_logits(x, t, {.reduction = r}); }),
    {{"weights",
      {{{5, 7}, -3, 3}, {{5, 7}, 0, 1}, {{5, 1}, 0, 4, Fill::index}, {{7}, 1, 4, Fill::index}},
      [](const Tensors& t) { return weighted_bce(t, LossReduction::mean); }},
     {"weights_none",
      {{{5, 7}, -3, 3}, {{5, 7}, 0, 1}, {{5, 1}, 0, 4, Fill::index}, {{7}, 1, 4, Fill::index}},
      [](const Tensors& t) { return weighted_bce(t, LossReduction::none); }},
     {"pos_weight", {{{5, 7}, -3, 3}, {{5, 7}, 0, 1}, {{7}, 1, 4, Fill::index}}, [](const Tensors& t) {
        return binary_cross_entropy_with_logits(t[0], t[1], {.pos_weight = cast(t[2], t[0].dtype())});
      }}})};
static const RegisterOp register_kl_div{
    with_samples(loss_op("kl_div", 0.1, 1, [](auto& x, auto& t, auto r) { return kl_div(x, t, {.reduction = r}); }),
                 {{"log_target", {{{5, 7}, -3, 0}, {{5, 7}, -3, 0}}, [](const Tensors& t) {
                     return kl_div(t[0], t[1], {.log_target = true});
                   }}})};

}  // namespace ringtape
