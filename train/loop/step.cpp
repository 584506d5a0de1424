#include "train/loop/step.h"

#include <algorithm>
#include <cmath>

#include "autograd/autocast.h"
#include "core/part.h"
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
    {.help = "keep a moving average of the weights with this decay and test the average; 0: no average",
     .unit = "DECAY",
     .range = kFraction});
  f("label-smoothing", o.label_smoothing,
    {.help = "fraction of the target that is spread evenly over all classes",
     .unit = "X",
     .range = kFraction,
     .with_labels = true});
  f("optimizer", o.optimizer.name,
    {.help = "update rule", .unit = "NAME", .choices = [] { return names_of(optimizers()); }, .selects = true});
}

Step::Step(nn::Module& model, Objective objective, const StepOptions& options, const ExecutionOptions& execution,
           comm::ProcessGroup& group, const ParallelOptions& parallel)
    : model_(model), objective_(std::move(objective)), group_(group.split(0, group.rank())),
      accumulate_(options.accumulate), synchronized_(group.size() > 1 && parallel.sync_bn),
      precision_(parse_dtype(execution.precision)),
      parameters_(model, [this](int64_t size, int64_t n, DType dtype,
                                Device device) { return gradient_memory(size, n, dtype, device); }),
      optimizer_(make_optimizer(options.optimizer, parameters_)),
      scale_(parameters_.values().device(), {.max_norm = options.clip_grad_norm, .dynamic = precision_ == DType::f16}) {
  if (options.ema > 0) ema_.emplace(parameters_, options.ema);
  if (group_->size() == 1) return;
  group_->set_deterministic(execution.deterministic);
  std::vector<comm::GradientSlot> slots;
  const int64_t front = memory_.size() - parameters_.size();
  for (const FlatParameters::Parameter& p : parameters_.parameters())
    slots.push_back({p.name, p.node, front + p.begin, front + p.end});
  reducer_ = std::make_unique<comm::Reducer>(*group_, memory_, std::move(slots), parallel.reducer);
}

// Memory that other ranks can reach; the gradients follow the reducer's control words.
Tensor Step::gradient_memory(int64_t size, int64_t parameters, DType dtype, Device device) {
  if (group_->size() == 1) return zeros({size}, dtype, device);
  const int64_t front = comm::Reducer::control_size(parameters);
  memory_ = group_->allocate({front + size}, dtype);
  return memory_.window({size}, {1}, front);
}

static Tensors slice_rows(const Tensors& images, const Part& rows) {
  Tensors out;
  for (const Tensor& x : images) out.push_back(rows.size() == x.dim(0) ? x : slice(x, 0, rows.begin, rows.end));
  return out;
}

// Processes the samples in parts. Every rank has the same number of parts, since modules may communicate in each.
Step::Result Step::gradients(const Tensors& images, const Tensor& y, WholeBatch whole,
                             const std::function<void(Phase)>& ended) {
  const int64_t samples = y.size(), all = whole.samples > 0 ? whole.samples : samples;
  const auto parts = int(std::clamp<int64_t>(all / group_->size(), 1, accumulate_));
  Tensor loss, spread;
  Tensors logits;
  for (int i = 0; i < parts; ++i) {
    const Part rows = part_of(samples, parts, i);
    const double share = double(rows.size()) / double(all);
    Outcome part;
    if (samples > 0 || synchronized_) {
      part = objective_(slice_rows(images, rows), slice_rows(Tensors{y}, rows)[0]);
      if (part.logits.defined()) logits.push_back(part.logits);
      spread = part.spread;
      if (rows.size() > 0) {
        const Tensor weighed = share == 1 ? part.loss.detach() : part.loss.detach() * share;
        loss = loss.defined() ? loss + weighed : weighed;
      }
    }
    if (ended) ended(Phase::forward);
    const Tensor total = part.auxiliary_loss.defined() ? part.loss + part.auxiliary_loss : part.loss;
    if (reducer_ && i == parts - 1) reducer_->arm(total, {loss, samples, all, whole.stop});
    if (total.defined())
      backward(total, share == 1 && !scale_.dynamic() ? Tensor{} : scale_.seed(share, total.dtype()));
    if (reducer_ && i == parts - 1) reducer_->finish();
    if (ended) ended(Phase::backward);
  }
  return {reducer_ ? reducer_->loss() : loss,
          logits.empty()       ? Tensor{}
          : logits.size() == 1 ? logits[0]
                               : concat(logits),
          loss, spread};
}

Step::Result Step::run(const Tensors& images, const Tensor& y, double lr, const std::function<void(Phase)>& ended,
                       WholeBatch whole) {
  optimizer_->zero_grad();
  Result out;
  {
    const Autocast autocast(precision_);
    out = gradients(images, y, whole, ended);
  }
  const Tensor squares =
      scale_.active() || optimizer_->wants_squares() ? parameters_.gradient_squares() : Tensor{};
  optimizer_->step(lr, scale_.active() ? scale_.factor(squares) : Tensor{}, squares);
  if (ema_) ema_->update();
  if (ended) ended(Phase::optimizer);
  return out;
}

bool Step::finite() const {
  const Tensor host = parameters_.squares_of(parameters_.values()).copy_to(Device{});
  return std::ranges::all_of(host.span<double>(), [](double sum) { return std::isfinite(sum); });
}

std::vector<Tensor> Step::replicated() const {
  std::vector<Tensor> out = {parameters_.values()};
  for (const NamedTensor& t : optimizer_->state()) out.push_back(t.tensor);
  if (scale_.dynamic()) out.push_back(scale_.state());
  if (ema_) out.push_back(ema_->average());
  for (const nn::Named& b : nn::named_buffers(model_)) out.push_back(b.tensor->detach());
  return out;
}

std::vector<NamedTensor> Step::state() const {
  std::vector<NamedTensor> out;
  for (const NamedTensor& flat : optimizer_->state())
    for (const NamedTensor& p : parameters_.named(flat.tensor))
      out.push_back({flat.name + "." + p.name, in_file_order(p.tensor)});
  if (scale_.dynamic()) out.push_back({"loss_scale", scale_.state()});
  return out;
}

std::vector<NamedTensor> Step::average() const {
  std::vector<NamedTensor> out;
  if (!ema_) return out;
  for (const NamedTensor& p : parameters_.named(ema_->average())) out.push_back({p.name, in_file_order(p.tensor)});
  for (const nn::Named& b : nn::named_buffers(model_)) out.push_back({b.name, in_file_order(*b.tensor)});
  return out;
}

}  // namespace ringtape
