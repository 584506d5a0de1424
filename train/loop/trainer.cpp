#include "train/loop/trainer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "autograd/create.h"
#include "comm/parallel/agreement.h"
#include "core/log.h"
#include "nn/batch_norm.h"
#include "nn/mode_guard.h"
#include "train/evaluation/metrics.h"
#include "train/evaluation/snapshot_parts.h"
#include "train/io/json_reader.h"
#include "train/loop/stopwatch.h"
#include "train/report/progress.h"
#include "train/run/stop.h"
#include "train/run/time_text.h"
#include "train/weights/weights.h"

namespace ringtape {

Trainer::Trainer(Task& task, comm::ProcessGroup& group)
    : task_(task), learner_(*task.learner), group_(group), data_(identity_of(task.data)),
      trace_(task.options.trace, concat(task.options.model.name, " on ", task.options.execution.device)) {
  const TrainOptions& o = task.options;
  split_ = holdout(task.data.train.size(), o.data.val_size, uint64_t(o.execution.seed));
  group.set_deterministic(o.execution.deterministic);
  const std::string counts = concat(task.data.train.size(), " training and ", task.data.test.size(), " test images\n");
  comm::check_same(group, "the data", counts + lines_of(trained_on(task.data.train)));
  comm::check_same(group, "the settings", common_settings_text(o));
  learner_.check(split_);
  loader_ = std::make_unique<Loader>(make_loader());
  if (group.size() > 1 && o.parallel.sync_bn) nn::synchronize_batch_norm(*task.model, &group);
  learner_.distribute(group);
  step_ = std::make_unique<Step>(*task.model, learner_.objective(), o.step, o.execution, group, o.parallel);
  at_.random = default_generator().state();
  const int64_t limit = o.trainer.limit_train_batches;
  const int64_t steps_per_epoch = limit > 0 ? std::min(loader_->batches(), limit) : loader_->batches();
  schedule_ = Schedule(o.schedule, peak_lr(o.schedule, group.size()), steps_per_epoch, o.trainer.epochs);
  if (const std::string head = learner_.fixed_lr(); !head.empty()) step_->fix_lr(head, schedule_.lr());
  const int64_t steps = o.trainer.epochs * steps_per_epoch;
  RT_CHECK_AS(UsageError, o.trace.path.empty() || o.trace.step <= steps, "--trace-step ", o.trace.step,
              ": the training has only ", steps, " steps");
}

Loader Trainer::make_loader() const {
  const TrainOptions& o = task_.options;
  return Loader(task_.data.train, split_.train,
                learner_.loading({.batch_size = o.trainer.batch_size,
                                  .shuffle = true,
                                  .seed = uint64_t(o.execution.seed),
                                  .workers = int(o.execution.workers),
                                  .device = task_.device,
                                  .rank = group_.rank(),
                                  .ranks = group_.size()}));
}

bool Trainer::train_epoch(StepLog& log, const Save& save, bool progress) {
  const TrainOptions& o = task_.options;
  const nn::ModeGuard mode(*task_.model, true);
  const int64_t every = task_.options.checkpoint.steps;
  Stopwatch whole, watch;
  double* const parts[] = {&at_.seconds.forward, &at_.seconds.backward, &at_.seconds.optimizer};
  const auto ended = [&](Phase phase) {
    *parts[int(phase)] += watch.lap();
    trace_.ended(phase);
  };
  Progress bar(concat("epoch ", at_.epoch + 1, "/", task_.options.trainer.epochs), steps_per_epoch(),
               progress && leads());
  if (task_.replicas) travelled_ = task_.replicas->travelled().bytes();
  Loader::Epoch batches = loader_->epoch(at_.epoch, at_.batch);
  while (at_.batch < steps_per_epoch()) {
    watch.lap();
    const Batch* batch = batches.next();
    at_.seconds.data += watch.lap();
    const double lr = schedule_.at(steps());
    trace_.begin(steps() + 1);
    comm::Activity::process().set_step(steps() + 1);
    learner_.begin_step({steps(), o.trainer.epochs * steps_per_epoch(), at_.epoch, uint64_t(o.execution.seed)});
    const Step::Result result = step_->run(batch->images(), batch->y, lr, ended, {batch->whole, stop_requested()});
    if (result.spread.defined()) spread_ = Readback(result.spread);
    trace_.end(step_->reducer(), group_);
    log.add(*step_, result, batch->whole, at_.epoch + 1, lr);
    tally_.add(result.loss, result.logits, batch->y);  // reads the previous step
    if (group_.size() > 1 && tally_.finite())
      add_own_loss(result.own, double(batch->y.size()) / double(std::max<int64_t>(batch->whole, 1)));
    ++at_.batch;
    if (!tally_.finite()) break;
    if (bar.due() && tally_.samples() > 0) {
      const double left = left_->seconds(steps());
      const bool more = task_.options.trainer.epochs > 1 && worth_telling(left);  // more than the bar itself says
      const std::string in_all = more ? concat(", ", duration_text(left), " left in total") : "";
      bar.update(at_.batch, concat("loss ", std::round(1e4 * tally_.loss()) / 1e4, in_all));
    }
    const bool stop = step_->reducer() ? step_->reducer()->stop() : stop_requested();
    if (at_.batch == steps_per_epoch() || !(stop || (every > 0 && steps() % every == 0))) continue;
    tally_.finish();
    if (!tally_.finite()) break;
    log.flush();
    at_.seconds.whole += whole.lap();
    count_traffic();
    checkpoint(save);
    if (stop) return false;
  }
  tally_.finish();
  log.flush();
  at_.seconds.whole += whole.lap();
  count_traffic();
  return true;
}

// Reads the value of the previous step, which the device has finished.
void Trainer::add_own_loss(const Tensor& own, double share) {
  if (own_loss_.defined()) own_losses_ += own_loss_.get().item();
  own_share_ += pending_share_;
  own_loss_ = own.defined() ? Readback(own) : Readback();
  pending_share_ = own.defined() ? share : 0;
}

// This rank's own line for epoch at_.epoch so far: the mean loss of its own images, and its times.
std::string Trainer::own_figures() const {
  Readback last = own_loss_;
  const double losses = own_losses_ + (last.defined() ? last.get().item() : 0), share = own_share_ + pending_share_;
  const PassSeconds& s = at_.seconds;
  const auto ms = [this](double seconds) {
    return shortest(std::round(1e5 * seconds / double(std::max<int64_t>(at_.batch, 1))) / 100);
  };
  return concat("epoch ", at_.epoch + 1, "/", task_.options.trainer.epochs, "  step ", steps(), "  own loss ",
                share > 0 ? shortest(std::round(1e4 * losses / share) / 1e4) : "none", "  ", ms(s.whole),
                " ms per step: data ", ms(s.data), ", forward ", ms(s.forward), ", backward ", ms(s.backward),
                ", optimizer ", ms(s.optimizer));
}

void Trainer::count_traffic() {
  if (task_.replicas) {
    const int64_t now = task_.replicas->travelled().bytes();
    at_.traffic.bytes += now - std::exchange(travelled_, now);
  }
  if (!step_->reducer()) return;
  const comm::Reducer::Totals now = step_->traffic();
  at_.traffic.bytes += now.bytes - counted_.bytes;
  at_.traffic.seconds += (now.communicating - counted_.communicating).count();
  at_.traffic.exposed += (now.exposed - counted_.exposed).count();
  counted_ = now;
}

Metrics Trainer::train_metrics() {
  Metrics m = epoch_metrics(group_, tally_, "train", at_.seconds.whole, task_);
  m.lr = schedule_.at(steps() - 1);
  if (!learner_.counts_right()) m.top1 = m.top5 = std::nullopt;
  if (spread_.defined()) m.spread = spread_.get().item();
  warn_if_collapsed(*m.loss, m.spread);
  m.data_s = at_.seconds.data, m.forward_s = at_.seconds.forward;
  m.backward_s = at_.seconds.backward, m.optimizer_s = at_.seconds.optimizer;
  m.steps = at_.batch;
  if (step_->reducer() || task_.replicas) m.comm_bytes = double(at_.traffic.bytes);
  // On a GPU the host only submits work and cannot time it.
  const bool host_waits = task_.device.type == DeviceType::cpu;
  if (step_->reducer() && host_waits) m.comm_s = at_.traffic.seconds, m.exposed_s = at_.traffic.exposed;
  return m;
}

void Trainer::warn_if_collapsed(double loss, std::optional<double> spread) const {
  constexpr double kNear = 2e-3;
  constexpr int64_t kFirstSteps = 50;  // during which outputs may still be nearly equal
  const auto collapsed = learner_.collapsed_loss(task_.options.trainer.batch_size / group_.size());
  if (!leads() || !collapsed || steps() < kFirstSteps || std::abs(loss - *collapsed) > kNear) return;
  log_warn(task_.options.method.name, ": the loss of epoch ", at_.epoch + 1, " was ", loss,
           ", the value for outputs that do not depend on the image (", *collapsed, "; spread ", spread.value_or(0),
           "): the training has collapsed; try another --lr, more --warmup-epochs or another --normalize");
}

void Trainer::checkpoint(const Save& save) {
  if (saved_step_ == steps()) return;
  RT_CHECK_AS(Error, step_->finite(), "the weights are no longer finite after step ", steps(), " (learning rate ",
              schedule_.at(steps()), ") and are not saved; lower --lr, or find the operation with RINGTAPE_NAN=1");
  at_.step = saved_step_ = steps();
  at_.parameter_steps = step_->own_counts();
  at_.tally = of_all(group_, tally_).totals();
  at_.random = default_generator().state();
  at_.counters = group_.size() > 1 ? of_each(group_, int64_t(at_.random.counter)) : std::vector<int64_t>();
  share_buffers();
  exchange_state([&] {
    if (save) save();
  });
}

// Rank 0 does f, which reads or writes the tensors of files().
void Trainer::exchange_state(const std::function<void()>& f) {
  if (!leads()) return step_->serve();
  f();
  step_->served();
}

// Names the ranks whose samples made the loss non-finite if they are some, not all; else empty.
std::string Trainer::whose_loss() const {
  Readback own = own_loss_;
  const bool bad = own.defined() && !std::isfinite(own.get().item());
  std::string ranks;
  int count = 0;
  const std::vector<int64_t> all = of_each(group_, bad);
  for (size_t r = 0; r < all.size(); ++r)
    if (all[r]) ranks += concat(++count > 1 ? ", " : "", r);
  if (count == 0 || count == group_.size()) return "";
  return concat(", first on ", count == 1 ? "rank " : "ranks ", ranks, " of ", group_.size(), ",");
}

// With --ema, the model has the averaged weights while the returned object lives. All ranks get the same buffers.
std::unique_ptr<Ema::Use> Trainer::weights_to_judge() {
  share_buffers();
  return step_->ema() ? std::make_unique<Ema::Use>(*step_->ema()) : nullptr;
}

// With --export best, replaces the last weights by those of the best validation.
void Trainer::take_best(const Load& load) {
  if (task_.options.checkpoint.exported != "best" || !at_.best || at_.best->step == steps()) return;
  exchange_state([&] { load(at_.best->step); });
  replicate(group_, step_->replicated());
}

bool Trainer::fit(const Report& report, const Save& save, bool progress, const Load& load) {
  RT_CHECK_AS(UsageError, task_.options.trace.path.empty() || steps() < task_.options.trace.step, "--trace-step ",
              task_.options.trace.step, ": the run is already at step ", steps(), "; choose a later step");
  if (leads()) trace_.check();
  for (const Device device : task_.devices()) reset_peak_memory(device);
  const auto emit = [&](Metrics m, int64_t epoch) {
    m.epoch = epoch;
    m.step = steps();
    // The sign of a NaN has no meaning: drop it.
    if (m.loss && std::isnan(*m.loss)) m.loss = std::numeric_limits<double>::quiet_NaN();
    if (leads()) report(m);
    RT_CHECK_AS(Error, std::isfinite(m.loss.value_or(0)), "the ", m.split, " loss became ", *m.loss, whose_loss(),
                " by step ", m.step, " (epoch ", epoch, ", learning rate ", schedule_.at(m.step),
                "); lower --lr, or find the operation with RINGTAPE_NAN=1");
    return m;
  };
  const TrainOptions& o = task_.options;
  StepLog log(o.run.log_every, leads() ? report : Report([](const Metrics&) {}));
  const int64_t first = at_.epoch;
  left_.emplace(steps(), o.trainer.epochs * steps_per_epoch());
  const auto with_time_left = [&](Metrics m) {  // reported once
    if (at_.epoch == first) m.left_s = left_->seconds(steps());
    return m;
  };
  const auto judge = [&](int64_t epoch) {
    const auto average = weights_to_judge();
    std::optional<Snapshot> snapshot = snapshot_of(epoch, learner_.judged_split());
    std::vector<Metrics> figures =
        learner_.judge(task_, split_, progress && leads(), group_, snapshot ? &*snapshot : nullptr);
    show(snapshot);
    return figures;
  };
  while (at_.epoch < o.trainer.epochs) {
    if (!train_epoch(log, save, progress)) return false;
    const int64_t epoch = at_.epoch + 1;
    if (diary_) diary_(own_figures());
    const bool judged = learner_.judges_after(epoch, split_);
    emit(judged ? train_metrics() : with_time_left(train_metrics()), epoch);
    bool best = false;
    if (judged) {
      const std::vector<Metrics> figures = judge(epoch);
      for (const Metrics& m : figures) emit(&m == &figures[0] ? with_time_left(m) : m, epoch);
      best = !at_.best || *figures[0].top1 > at_.best->top1;
      if (best) at_.best = TrainState::Best{steps(), *figures[0].top1};
    }
    at_.epoch = epoch, at_.batch = 0, at_.seconds = {}, at_.traffic = {};
    tally_ = {};
    own_loss_ = {}, own_losses_ = own_share_ = pending_share_ = 0;
    const bool stop = epoch < o.trainer.epochs && any_of(group_, stop_requested());
    const int64_t every = o.checkpoint.every;
    if (stop || (every > 0 && (best || epoch % every == 0 || epoch == o.trainer.epochs))) checkpoint(save);
    if (stop) return false;
  }
  take_best(load);
  averaged_.reset();
  averaged_ = weights_to_judge();
  std::optional<Snapshot> snapshot = snapshot_of(o.trainer.epochs, "test");
  const std::vector<Metrics> figures =
      learner_.test(task_, progress && leads(), group_, snapshot ? &*snapshot : nullptr);
  for (const Metrics& m : figures) emit(m, o.trainer.epochs);
  if (!figures.empty()) show(snapshot);
  return true;
}

// An empty snapshot if one is due after this epoch, the last one, or after one since it was judged before: after the
// first, and at equal distances.
std::optional<Snapshot> Trainer::snapshot_of(int64_t epoch, const char* split) const {
  const int64_t most = task_.options.run.snapshots, epochs = task_.options.trainer.epochs;
  if (most == 0) return {};
  const int64_t every = (epochs + most - 1) / most;
  bool due = epoch == epochs;
  for (int64_t e = epoch; e > 0 && !due && (e == epoch || !learner_.judges_after(e, split_)); --e)
    due = e == 1 || e % every == 0;
  if (!due) return {};
  Snapshot out;
  out.epoch = epoch, out.step = steps(), out.split = split;
  return out;
}

void Trainer::show(std::optional<Snapshot>& snapshot) const {
  if (!snapshot || !leads() || !album_) return;
  add_filters(*snapshot, learner_.network(), task_.data.train.images.shape().without(0));
  album_(*snapshot);
}

std::vector<TensorFile> Trainer::files() const {
  const auto metadata = weights_metadata(task_);
  std::vector<TensorFile> out = {{"model.safetensors", file_tensors(weights_of(*task_.model)), metadata},
                                 {"optimizer.safetensors", step_->state()}};
  if (step_->ema()) out.push_back({"ema.safetensors", step_->average(), metadata});
  return out;
}

Course Trainer::course() const {
  const auto changed = [this](const Course::Texts& before) { return changed_settings(task_.options, before); };
  Course out{kept_settings(task_.options), changed, data_, steps_per_epoch()};
  for (const TensorFile& file : files()) out.files.push_back(file.name);
  return out;
}

void Trainer::export_weights(const std::string& path) const {
  write_safetensors(path, learner_.exported(weights_of(*task_.model)), weights_metadata(task_));
}

void Trainer::restore(const TrainState& state) {
  at_ = state;
  tally_ = leads() ? Tally(state.tally) : Tally();
  step_->set_count(state.step, state.parameter_steps);
  saved_step_ = state.step;
  default_generator().set_state(own_random(state));
}

// Ranks draw from distant positions of one stream, so that each has its own dropout. If the number of ranks is
// unchanged, each resumes at its own position.
RandomState Trainer::own_random(const TrainState& state) const {
  constexpr uint64_t kApart = uint64_t{1} << 48;
  RandomState own = state.random;
  if (state.counters.size() == size_t(group_.size()))
    own.counter = uint64_t(state.counters[size_t(group_.rank())]);
  else
    own.counter += kApart * uint64_t(group_.rank());
  return own;
}

void Trainer::share_state() {
  if (group_.size() == 1) return;
  exchange_state([] {});  // which rank 0 has done before
  at_.step = steps(), at_.parameter_steps = step_->own_counts();
  constexpr const char* kFrom = "the state of rank 0";
  restore(parse_train_state(parse_json(comm::broadcast_text(group_, to_json(at_).text(), 0), kFrom), kFrom));
  replicate(group_, step_->replicated());
  if (steps() == 0) step_->restart_average();
}

// Running statistics differ between ranks, since each has its own samples: rank 0's are copied to all, as in PyTorch's
// DistributedDataParallel.
void Trainer::share_buffers() {
  std::vector<Tensor> buffers;
  for (const nn::Named& b : nn::named_buffers(*task_.model)) buffers.push_back(b.tensor->detach());
  replicate(group_, buffers);
}

}  // namespace ringtape
