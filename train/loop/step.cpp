#include "train/loop/step.h"

#include <algorithm>

#include "autograd/autocast.h"
#include "core/env.h"
#include "core/log.h"
#include "core/part.h"
#include "core/registry.h"
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
    : model_(model), objective_(std::move(objective)), group_(group.split(0, group.rank())),
      accumulate_(options.accumulate), batch_shares_(parallel.shares),
      synchronized_(group.size() > 1 && parallel.sync_bn), precision_(compute_dtype(execution)),
      parameters_(model, std::bind_front(&Step::gradient_memory, this, parallel.entry().shards(Sharded::gradients)),
                  parallel.entry().shards() ? std::bind_front(&Step::value_memory, this, std::cref(parallel))
                                    : FlatParameters::Memory{},
                  has_common_memory(parallel) ? group_.get() : nullptr),
      reducer_(make_reducer(options, parallel)), shards_(make_shards()),
      weights_(hold_own(group, parallel)), teacher_(make_teacher(group, parallel)),
      optimizer_(make_optimizer(options.optimizer, parameters_)),
      scale_(parameters_.device(), {.max_norm = options.clip_grad_norm,
                                    .dynamic = precision_ == DType::f16 ||
                                               comm::find_reduction(parallel.reducer.reduction.name).scaled}) {
  group_->set_deterministic(execution.deterministic);
  if (parallel.shares_weights() && group_->size() > 1 && !has_common_memory(parallel) && group_->rank() == 0)
    log_warn("--share-weights: ranks over ", group_->transport().name(), " have no memory in common: each has its own "
             "copy; --transport shm, on one machine and its CPU, has");
  set_deterministic_convolutions(execution.deterministic);
  if (options.ema > 0) {
    ema_.emplace(parameters_, options.ema, shards_.get());
    set_average_statistics();
  }
  if (!shards_) return;
  std::vector<StateExchange::Held> held;
  for (const NamedTensor& state : optimizer_->state()) held.push_back({state.tensor, *shards_});
  if (ema_) held.push_back({ema_->average(), *shards_});
  if (weights_) held.push_back({parameters_.own_values(), *shards_});
  if (teacher_) held.push_back({teacher_->own(), teacher_->shards()});
  exchange_ = std::make_unique<StateExchange>(*group_, std::move(held));
}

std::unique_ptr<comm::Reducer> Step::make_reducer(const StepOptions& options, const ParallelOptions& parallel) {
  if (group_->size() == 1 && batch_shares_ == 0) return nullptr;
  const int64_t front = this->front(int64_t(parameters_.parameters().size()));
  std::vector<comm::GradientSlot> slots;
  comm::Sharding sharding{.release = parallel.entry().shards(Sharded::gradients)};
  const bool whole = find_entry(optimizers(), options.optimizer.name, "optimizer").whole;
  for (const FlatParameters::Parameter& p : parameters_.parameters()) {
    slots.push_back({p.name, p.node, front + p.begin, front + p.end});
    if (whole && parallel.entry().shards()) sharding.places.push_back(front + p.begin);
  }
  const auto cells = parameters_.cells().span<int64_t>();
  for (size_t i = 0; i < cells.size() && parallel.entry().shards() && !whole; i += 4)
    if (cells[i] % 16 == 0) sharding.places.push_back(front + cells[i]);  // aligned for vectors
  comm::ReducerOptions reducer = parallel.reducer;
  reducer.shares = batch_shares_, reducer.prompt = parallel.elastic.on || batch_shares_ > 0;
  return std::make_unique<comm::Reducer>(*group_, memory_, std::move(slots), reducer, sharding);
}

std::unique_ptr<comm::Shards> Step::make_shards() {
  if (!reducer_ || reducer_->stretches().empty()) return nullptr;
  std::vector<comm::Stretch> stretches = reducer_->stretches();
  const int64_t front = comm::Reducer::control_size(int64_t(parameters_.parameters().size()));
  for (comm::Stretch& s : stretches) s.begin -= front;
  auto out = std::make_unique<comm::Shards>(*group_, std::move(stretches));
  parameters_.shard(*out, reducer_->kept(), reducer_->reached());
  return out;
}

Step::~Step() {
  if (!parameters_.has_common_values()) return;
  const std::shared_ptr<Storage>& values = parameters_.values().storage();
  values->provide(nullptr);
  values->set_arriving([](size_t, size_t) -> bool {
    throw Error("weights that ranks had in common are used after the end of the training");
  });
}

std::unique_ptr<comm::ShardedBuffers> Step::hold_own(comm::ProcessGroup& group, const ParallelOptions& parallel) {
  if (!shards_ || !parallel.entry().shards(Sharded::weights)) return nullptr;
  return parameters_.hold_own(group, *shards_, gathering(group, parallel));
}

Gathering Step::gathering(const comm::ProcessGroup& group, const ParallelOptions& parallel) const {
  Gathering out{.keeps = parallel.keep_weights, .precision = precision_};
  if (parallel.entry().within)
    out.within = parallel.shard_within > 0 ? int(parallel.shard_within) : group.transport().context().island;
  return out;
}

std::unique_ptr<ShardedTeacher> Step::make_teacher(comm::ProcessGroup& group, const ParallelOptions& parallel) {
  nn::TeacherWeights* const weights = weights_ ? nn::teacher_of(model_) : nullptr;
  if (!weights) return nullptr;
  return std::make_unique<ShardedTeacher>(*weights, parameters_, *shards_, *weights_, *group_,
                                          gathering(group, parallel));
}

// Memory that other ranks can reach; the gradients follow the reducer's control words, or get memory from the reducer.
Tensor Step::gradient_memory(bool released, int64_t size, int64_t parameters, DType dtype, Device device) {
  if (group_->size() == 1 && batch_shares_ == 0) return zeros({size}, dtype, device);
  const int64_t front = this->front(parameters);
  memory_ = group_->allocate({released ? front : front + size}, dtype);
  return released ? Tensor() : memory_.window({size}, {1}, front);
}

// Values that shards exchange; none if ranks hold only their own.
Tensor Step::value_memory(const ParallelOptions& parallel, int64_t size, int64_t, DType dtype, Device device) {
  if (group_->size() == 1) return zeros({size}, dtype, device);
  if (parallel.entry().shards(Sharded::weights)) return {};
  return has_common_memory(parallel) ? group_->allocate_common({size}, dtype) : group_->allocate({size}, dtype);
}

// Whether the ranks share weights, as they are asked to.
bool Step::has_common_memory(const ParallelOptions& parallel) const {
  const comm::Transport& t = group_->transport();
  if (!parallel.shares_weights() || t.size() == 1) return false;
  return t.abilities().shares_memory && t.device().type == DeviceType::cpu;
}

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
Step::Result Step::gradients(const Tensors& images, const Labels& y, WholeBatch whole,
                             const std::function<void(Phase)>& ended) {
  const int64_t samples = y.size(), all = whole.samples > 0 ? whole.samples : samples;
  const auto parts = int(std::clamp<int64_t>(all / group_->size(), 1, accumulate_));
  const bool some_idle = weights_ && !synchronized_ && all < group_->size();  // then there is one part
  std::optional<ShardedTeacher::Whole> teacher;
  if (some_idle && teacher_) teacher.emplace(*teacher_);
  if (some_idle && samples > 0) weights_->announce(true);
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
    if (ended) ended(Phase::forward);
    const Tensor total = part.auxiliary_loss.defined() ? part.loss + part.auxiliary_loss : part.loss;
    if (i == parts - 1 && whole.counts) right = count_right(logits, y.larger());
    if (reducer_ && i == parts - 1) reducer_->arm(total, {loss, samples, all, with_right(whole.riders, right)});
    if (total.defined())
      backward(total, share == 1 && !scale_.dynamic() ? Tensor{} : scale_.seed(share, total.dtype()));
    if (some_idle && samples > 0) weights_->announce(false);
    else if (some_idle) weights_->follow();
    if (reducer_ && i == parts - 1) reducer_->finish();
    if (ended) ended(Phase::backward);
  }
  if (reducer_) right = right_of(reducer_->riders());
  const Tensor all_logits = joined(logits);
  const Tensor ranks = all_logits.defined() && !whole.counts ? ranks_of(all_logits, y.larger()) : Tensor();
  return {reducer_ ? reducer_->loss() : loss, all_logits, loss, spread, ranks, right};
}

void Step::record_steps() {
  const bool alone = group_->size() == 1 && !reducer_ && !shards_, each_kernel = env::sync() || env::find_nan();
  if (!alone || each_kernel || !optimizer_->repeats() || !runtime(parameters_.device()).record) return;
  graph_ = std::make_unique<StepGraph>(model_, *optimizer_, parameters_.device());
}

Step::Result Step::run(const Tensors& images, const Labels& y, double lr, const std::function<void(Phase)>& ended,
                       WholeBatch whole) {
  if (graph_ && whole.apart) graph_->forget();
  if (!graph_ || whole.apart || whole.counts) return compute(images, y, lr, ended, whole);
  bool repeated = true;
  const Result out = graph_->run(images, y, lr, [&](const Tensors& x, const Labels& labels) {
    repeated = false;
    return compute(x, labels, lr, ended, whole);
  });
  for (const Phase phase : {Phase::forward, Phase::backward, Phase::optimizer})
    if (repeated && ended) ended(phase);
  return out;
}

Step::Result Step::compute(const Tensors& images, const Labels& y, double lr, const std::function<void(Phase)>& ended,
                           WholeBatch whole) {
  optimizer_->zero_grad();
  if (weights_) weights_->begin_round();
  Result out;
  {
    const Autocast autocast(precision_);
    std::optional<FlatParameters::Converted> converted;  // at once, unless others' values are not there yet
    if (!shards_ && !parameters_.has_common_values()) converted.emplace(parameters_, precision_);
    out = batch_shares_ > 0 ? share_gradients(images, y, whole, ended) : gradients(images, y, whole, ended);
  }
  const Tensor squares =
      scale_.active() || optimizer_->wants_squares() ? parameters_.gradient_squares() : Tensor{};
  const bool partly = weights_ || parameters_.has_common_values();  // others' values are not there, or change
  const Tensor value_squares = partly && optimizer_->wants_squares() ? parameters_.value_squares() : Tensor{};
  for (const Tensor& own : {squares, weights_ ? value_squares : Tensor{}})
    if (shards_ && own.defined()) group_->all_reduce(own).wait();  // the others' are 0
  parameters_.keep_writes();
  parameters_.meet();
  optimizer_->step(lr, scale_.active() ? scale_.factor(squares) : Tensor{}, squares, value_squares);
  if (ema_) ema_->update();
  parameters_.meet();
  if (weights_) weights_->forget(true);
  else if (shards_ && !parameters_.has_common_values()) shards_->start_gather(parameters_.values());
  if (ended) ended(Phase::optimizer);
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
