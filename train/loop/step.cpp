#include "train/loop/step.h"

#include <algorithm>

#include "autograd/autocast.h"
#include "core/env.h"
#include "core/log.h"
#include "core/part.h"
#include "core/registry.h"
#include "core/runtime.h"
#include "kernels/conv2d.h"
#include "kernels/copy.h"
#include "train/loop/step_graph.h"
#include "train/loop/step_parts.h"
#include "train/weights/weights.h"

namespace ringtape {

void visit(Fields& f, StepOptions& o) {
  f("accumulate", o.accumulate,
    {.help = "number of parts of a batch that are computed one after another: less memory, the same step",
     .unit = "N",
     .range = kPositive,
     .with_labels = true});
  f("clip-grad-norm", o.clip_grad_norm,
    {.help = "maximum norm of all gradients together; 0: no limit", .unit = "X", .range = kReal});
  f("ema", o.ema,
    {.help = "keep a moving average of the weights with this decay and test the average, with running statistics of "
             "its own; 0: no average",
     .unit = "DECAY",
     .range = kFraction});
  f("label-smoothing", o.label_smoothing,
    {.help = "fraction of the target that is spread evenly over all classes",
     .unit = "X",
     .range = kFraction,
     .with_labels = true});
  f("class-weights", o.class_weights,
    {.help = "factor of each class in the loss of training: none, balanced (images / classes / images of the class) or "
             "a number for each class, such as 1,2.5,1",
     .unit = "WHICH",
     .with_labels = true});
  f("optimizer", o.optimizer.name,
    {.help = "update rule", .unit = "NAME", .choices = [] { return names_of(optimizers()); }, .selects = true});
}

Step::Step(nn::Module& model, Objective objective, const StepOptions& options, const ExecutionOptions& execution,
           comm::ProcessGroup& group, const ParallelOptions& parallel)
    : model_(model), objective_(std::move(objective)), accumulate_(options.accumulate),
      synchronized_(group.size() > 1 && parallel.sync_bn), precision_(compute_dtype(execution)),
      placement_(make_placement({model, group, parallel, precision_,
                                 find_entry(optimizers(), options.optimizer.name, "optimizer").undivided})),
      optimizer_(make_optimizer(options.optimizer, placement_->parameters())),
      scale_(placement_->parameters().device(),
             {.max_norm = options.clip_grad_norm,
              .dynamic = precision_ == DType::f16 || comm::find_reduction(parallel.reducer.reduction.name).scaled}) {
  placement_->group().set_deterministic(execution.deterministic);
  if (options.ema > 0) {
    ema_.emplace(placement_->parameters(), options.ema, placement_->shards());
    set_average_statistics();
  }
  placement_->hold(own_buffers());
}

Step::~Step() = default;

Tensors slice_rows(const Tensors& images, const Part& rows) {
  Tensors out;
  for (const Tensor& x : images) out.push_back(rows.size() == x.dim(0) ? x : slice(x, 0, rows.begin, rows.end));
  return out;
}

static Tensor joined(const Tensors& logits) {
  return logits.empty() ? Tensor{} : logits.size() == 1 ? logits[0] : concat(logits);
}

Tally::Totals count_right(const Tensors& logits, const Tensor& y) {
  Tally tally;
  if (!logits.empty()) tally.add(zeros({}), joined(logits), y);
  tally.finish();
  return tally.totals();
}

Riders with_right(Riders riders, const Tally::Totals& right) {
  riders[kTop1] = double(right.top1), riders[kTop5] = double(right.top5);
  return riders;
}

Tally::Totals right_of(const Riders& riders) {
  return {.top1 = int64_t(riders[kTop1]), .top5 = int64_t(riders[kTop5])};
}

Tensor total_of(Outcome part) { return part.auxiliary_loss.defined() ? part.loss + part.auxiliary_loss : part.loss; }

void copy_all(const Tensors& to, const Tensors& from) {
  RT_CHECK_EQ(to.size(), from.size());
  for (size_t i = 0; i < to.size(); ++i) copy(to[i], from[i]);
}

Tensors clones(const Tensors& tensors) {
  Tensors out;
  for (const Tensor& t : tensors) out.push_back(empty_like(t));
  copy_all(out, tensors);
  return out;
}

// Processes the samples in parts. Every rank has the same number of parts, since modules may communicate in each.
Step::Result Step::gradients(const Tensors& images, const Labels& y, GlobalBatch global,
                             const std::function<void(StepPhase)>& ended) {
  const int64_t samples = y.size(), all = global.samples > 0 ? global.samples : samples;
  const auto parts = int(std::clamp<int64_t>(all / placement_->group().size(), 1, accumulate_));
  const auto uneven = synchronized_ ? nullptr : placement_->uneven(samples, all);  // then there is one part
  Tensor loss, spread;
  Tensors logits;
  Tally::Totals right;
  for (int i = 0; i < parts; ++i) {
    const Part rows = part_of(samples, parts, i);
    const double share = double(rows.size()) / double(all);
    Outcome part;
    if (samples > 0 || synchronized_) {
      part = objective_(slice_rows(images, rows), y.rows(rows));
      if (part.logits.defined()) logits.push_back(part.logits);
      spread = part.spread;
      if (rows.size() > 0) {
        const Tensor weighed = share == 1 ? part.loss.detach() : part.loss.detach() * share;
        loss = loss.defined() ? loss + weighed : weighed;
      }
    }
    if (ended) ended(StepPhase::forward);
    Tensor total = total_of(std::move(part));
    if (i == parts - 1 && global.counts) right = count_right(logits, y.larger());
    if (i == parts - 1) placement_->arm(total, {loss, samples, all, with_right(global.riders, right)});
    if (total.defined())
      backward(std::move(total), share == 1 && !scale_.dynamic() ? Tensor{} : scale_.seed(share, total.dtype()));
    if (uneven) uneven->end();
    if (i == parts - 1) placement_->finish();
    if (ended) ended(StepPhase::backward);
  }
  const comm::Reducer* const reducer = placement_->reducer();
  if (reducer) right = right_of(reducer->words().riders());
  const Tensor all_logits = joined(logits);
  const Tensor ranks = all_logits.defined() && !global.counts ? ranks_of(all_logits, y.larger()) : Tensor();
  return {reducer ? reducer->words().loss() : loss, all_logits, loss, spread, ranks, right};
}

void Step::record_steps() {
  const bool each_kernel = env::sync() || env::find_nan();
  const Device device = placement_->parameters().device();
  if (each_kernel || !placement_->repeats() || !optimizer_->repeats() || !optimizer_->uses_factor() ||
      !runtime(device).record)
    return;
  graph_ = std::make_unique<StepGraph>(model_, *optimizer_, *placement_);
}

Step::Result Step::run(const Tensors& images, const Labels& y, double lr, const std::function<void(StepPhase)>& ended,
                       GlobalBatch global) {
  if (graph_ && global.apart) graph_->forget();
  if (!graph_ || global.apart || global.counts) return compute(images, y, lr, ended, global);
  bool repeated = true;
  const Result out = graph_->run(images, y, lr, global, [&](const Tensors& x, const Labels& labels) {
    repeated = false;
    return compute(x, labels, lr, ended, global);
  });
  for (const StepPhase phase : {StepPhase::forward, StepPhase::backward, StepPhase::optimizer})
    if (repeated && ended) ended(phase);
  return out;
}

Step::Result Step::compute(const Tensors& images, const Labels& y, double lr,
                           const std::function<void(StepPhase)>& ended, GlobalBatch global) {
  optimizer_->zero_grad();
  Result out;
  {
    const Autocast autocast(precision_);
    const auto round = placement_->begin_round();
    out = placement_->shares() > 0 ? share_gradients(images, y, global, ended) : gradients(images, y, global, ended);
  }
  const bool wants = optimizer_->wants_squares();
  const Placement::Squares squares = placement_->squares(scale_.active() || wants, wants);
  placement_->update([&] {
    optimizer_->step(lr, scale_.active() ? scale_.factor(squares.gradients) : Tensor{}, squares.gradients,
                     squares.values);
    if (ema_) ema_->update();
  });
  if (ended) ended(StepPhase::optimizer);
  return out;
}

void Step::set_rules(std::vector<ParameterRule> rules) {
  optimizer_->set_rules(std::move(rules));
  if (graph_) graph_->forget();
}

void Step::fix_lr(const std::string& prefix, double lr) {
  optimizer_->fix_lr(prefix, lr);
  if (graph_) graph_->forget();
}

void Step::set_momentum(double momentum) {
  constexpr double kLeast = 1e-30;
  if (graph_ && momentum < kLeast) graph_->forget();  // without momentum, other kernels
  RT_CHECK_AS(UsageError, optimizer_->set_momentum(momentum),
              "--cycle-momentum: this optimizer has no momentum; set --momentum above 0, or choose another");
}

}  // namespace ringtape
