#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "autograd/create.h"
#include "comm/same.h"
#include "core/log.h"
#include "nn/batch_norm.h"
#include "train/io/json_reader.h"
#include "train/metrics.h"
#include "train/mode_guard.h"
#include "train/ranks.h"
#include "train/run/progress.h"
#include "train/run/stop.h"
#include "train/run/time_text.h"
#include "train/stopwatch.h"
#include "train/weights.h"

namespace ringtape {

Trainer::Trainer(Task& task, comm::ProcessGroup* group)
    : task_(task), group_(group),
      trace_(task.options.trace, task.options.trace_step, concat(task.options.model, " on ", task.options.device)) {
  const TrainOptions& o = task.options;
  split_ = holdout(task.data.train.size(), o.val_size, uint64_t(o.seed));
  loader_ = std::make_unique<Loader>(make_loader());
  if (group) {
    group->set_deterministic(o.deterministic);
    const std::string counts = concat(task.data.train.size(), " training and ", task.data.test.size(), " test images\n");
    comm::check_same(*group, "the data", counts + lines_of(trained_on(task.data.train)));
    comm::check_same(*group, "the settings", common_settings_text(o));
  }
  if (group && o.sync_bn) nn::synchronize_batch_norm(*task.model, group);
  if (task.method) {
    task.method->distribute(group, o.gather_distributed);
    task.method->check_batch(o.batch_size);
  }
  step_ = std::make_unique<Step>(*task.model, objective(), o, group);
  at_.random = default_generator().state();
  RT_CHECK_AS(UsageError, o.exported == "last" || task.method || !split_.val.empty(),
              "--export best: there is no validation that tells which weights are; leave --val-size 0 out");
  schedule_.kind = parse_schedule(o.schedule);
  schedule_.lr = peak_lr(o, group ? group->size() : 1);
  schedule_.steps_per_epoch = o.limit_train_batches > 0 ? std::min(loader_->batches(), o.limit_train_batches) : loader_->batches();
  schedule_.epochs = o.epochs;
  schedule_.warmup_epochs = o.warmup_epochs;
  schedule_.warmup_lr = o.warmup_lr;
  schedule_.final_lr = o.final_lr;
  schedule_.by_epoch = o.schedule_by == "epoch";
  schedule_.step_size = o.step_size;
  schedule_.gamma = o.gamma;
  const int64_t steps = o.epochs * steps_per_epoch();
  RT_CHECK_AS(UsageError, o.trace.empty() || o.trace_step <= steps, "--trace-step ", o.trace_step, ": the training has only ", steps,
              " steps");
}

Loader Trainer::make_loader() const {
  const TrainOptions& o = task_.options;
  LoaderConfig config{.batch_size = o.batch_size,
                      .shuffle = true,
                      .seed = uint64_t(o.seed),
                      .workers = int(o.workers),
                      .device = task_.device,
                      .augmentation = {o.crop_padding, o.flip, o.rotation, o.cutout},
                      .rank = group_ ? group_->rank() : 0,
                      .ranks = group_ ? group_->size() : 1};
  if (task_.method) {
    const auto images = int64_t(split_.train.size());
    RT_CHECK_AS(UsageError, o.knn_k <= images, "--knn-k ", o.knn_k, ": more neighbours than the ", images, " training images");
    RT_CHECK_AS(UsageError, o.knn_bank == 0 || o.knn_k <= o.knn_bank, "--knn-k ", o.knn_k, ": more neighbours than the ", o.knn_bank,
                " images of --knn-bank");
    config.drop_last = true;
    config.augmentation = {};
    config.views = views_of(o);
  }
  return Loader(task_.data.train, split_.train, config);
}

Objective Trainer::objective() const {
  if (task_.method) return loss_of(*task_.method, task_.replicas.get());
  return cross_entropy_of(*task_.model, task_.replicas.get(), task_.options.label_smoothing);
}

bool Trainer::train_epoch(StepLog& log, const Save& save, bool progress) {
  const ModeGuard mode(*task_.model, true);
  const int64_t every = task_.options.checkpoint_steps;
  Stopwatch whole, watch;
  double* const parts[] = {&at_.seconds.forward, &at_.seconds.backward, &at_.seconds.optimizer};
  const auto ended = [&](Phase phase) {
    *parts[int(phase)] += watch.lap();
    trace_.ended(phase);
  };
  Progress bar(concat("epoch ", at_.epoch + 1, "/", task_.options.epochs), steps_per_epoch(), progress && leads());
  if (task_.replicas) travelled_ = task_.replicas->travelled().bytes();
  Loader::Epoch batches = loader_->epoch(at_.epoch, at_.batch);
  while (at_.batch < steps_per_epoch()) {
    watch.lap();
    const Batch* batch = batches.next();
    at_.seconds.data += watch.lap();
    const double lr = schedule_.at(steps());
    trace_.begin(steps() + 1);
    comm::Activity::process().set_step(steps() + 1);
    if (task_.method)
      task_.method->begin_step({steps(), task_.options.epochs * steps_per_epoch(), at_.epoch, uint64_t(task_.options.seed)});
    const Step::Result result =
        step_->run(batch->views.empty() ? Tensors{batch->x} : batch->views, batch->y, lr, ended, {batch->whole, stop_requested()});
    if (result.spread.defined()) spread_ = Readback(result.spread);
    trace_.end(step_->reducer(), group_);
    log.add(*step_, result, batch->whole, at_.epoch + 1, lr);
    tally_.add(result.loss, result.logits, batch->y);  // knows the step before
    if (group_ && tally_.finite()) add_own_loss(result.own, double(batch->y.size()) / double(std::max<int64_t>(batch->whole, 1)));
    ++at_.batch;
    if (!tally_.finite()) break;
    if (bar.due() && tally_.samples() > 0) {
      const double left = left_->seconds(steps());
      const bool more = task_.options.epochs > 1 && worth_telling(left);  // than the bar says itself
      const std::string in_all = more ? concat(", ", duration_text(left), " left in all") : "";
      bar.update(at_.batch, concat("loss ", std::round(1e4 * tally_.loss()) / 1e4, in_all));
    }
    const bool stop = group_ ? step_->reducer()->stop() : stop_requested();
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

// Reads the step's before it, which the device has finished.
void Trainer::add_own_loss(const Tensor& own, double share) {
  if (own_loss_.defined()) own_losses_ += own_loss_.get().item();
  own_share_ += pending_share_;
  own_loss_ = own.defined() ? Readback(own) : Readback();
  pending_share_ = own.defined() ? share : 0;
}

// Of the epoch at_.epoch so far, on this rank: the mean loss of its own images, and where its time went.
std::string Trainer::own_figures() const {
  Readback last = own_loss_;
  const double losses = own_losses_ + (last.defined() ? last.get().item() : 0), share = own_share_ + pending_share_;
  const PassSeconds& s = at_.seconds;
  const auto ms = [this](double seconds) { return shortest(std::round(1e5 * seconds / double(std::max<int64_t>(at_.batch, 1))) / 100); };
  return concat("epoch ", at_.epoch + 1, "/", task_.options.epochs, "  step ", steps(), "  own loss ",
                share > 0 ? shortest(std::round(1e4 * losses / share) / 1e4) : "none", "  ", ms(s.whole), " ms a step: data ", ms(s.data),
                ", forward ", ms(s.forward), ", backward ", ms(s.backward), ", optimizer ", ms(s.optimizer));
}

void Trainer::count_traffic() {
  if (task_.replicas) {
    const int64_t now = task_.replicas->travelled().bytes();
    at_.traffic.bytes += now - std::exchange(travelled_, now);
  }
  if (!step_->reducer()) return;
  const comm::Reducer::Totals& now = step_->reducer()->totals();
  at_.traffic.bytes += now.bytes - counted_.bytes;
  at_.traffic.seconds += (now.communicating - counted_.communicating).count();
  at_.traffic.exposed += (now.exposed - counted_.exposed).count();
  counted_ = now;
}

Metrics Trainer::train_metrics() {
  Metrics m = figures(group_, tally_, "train", at_.seconds.whole, task_);
  m.lr = schedule_.at(steps() - 1);
  if (task_.method) {
    if (!task_.method->has_probe()) m.top1 = m.top5 = std::nullopt;
    if (spread_.defined()) m.spread = spread_.get().item();
    warn_if_collapsed(*m.loss, m.spread);
  }
  m.data_s = at_.seconds.data, m.forward_s = at_.seconds.forward;
  m.backward_s = at_.seconds.backward, m.optimizer_s = at_.seconds.optimizer;
  m.steps = at_.batch;
  if (step_->reducer() || task_.replicas) m.comm_bytes = double(at_.traffic.bytes);
  const bool host_waits = task_.device.type == DeviceType::cpu;  // else it hands work over, and knows nothing of its times
  if (step_->reducer() && host_waits) m.comm_s = at_.traffic.seconds, m.exposed_s = at_.traffic.exposed;
  return m;
}

void Trainer::warn_if_collapsed(double loss, std::optional<double> spread) const {
  constexpr double kNear = 2e-3;
  constexpr int64_t kFirstSteps = 50;  // in which outputs may still be nearly alike
  const int64_t ranks = group_ ? group_->size() : 1, n = task_.options.batch_size / ranks;
  const auto collapsed = task_.method->collapsed_loss(n);
  if (!leads() || !collapsed || steps() < kFirstSteps || std::abs(loss - *collapsed) > kNear) return;
  log_warn(task_.options.method, ": the loss of epoch ", at_.epoch + 1, " was ", loss,
           ", what it is of outputs that do not depend on the image (", *collapsed, "; spread ", spread.value_or(0),
           "): it learns nothing; try another --lr, more --warmup-epochs, or other --normalize");
}

void Trainer::checkpoint(const Save& save) {
  if (saved_step_ == steps()) return;
  RT_CHECK_AS(Error, step_->finite(), "the weights are no longer finite behind step ", steps(), " (learning rate ", schedule_.at(steps()),
              "), so that they are not saved; lower --lr, or find the operation with RINGTAPE_NAN=1");
  at_.step = saved_step_ = steps();
  at_.parameter_steps = step_->own_counts();
  at_.tally = of_all(group_, tally_).totals();
  at_.random = default_generator().state();
  at_.counters = group_ ? of_each(*group_, int64_t(at_.random.counter)) : std::vector<int64_t>();
  if (group_) share_buffers();
  if (save && leads()) save();
}

// The ranks alone whose samples made the loss what it is; empty: it is none's, or that of all.
std::string Trainer::whose_loss() const {
  if (!group_) return "";
  Readback own = own_loss_;
  const bool bad = own.defined() && !std::isfinite(own.get().item());
  std::string ranks;
  int count = 0;
  const std::vector<int64_t> all = of_each(*group_, bad);
  for (size_t r = 0; r < all.size(); ++r)
    if (all[r]) ranks += concat(++count > 1 ? ", " : "", r);
  if (count == 0 || count == group_->size()) return "";
  return concat(", first on ", count == 1 ? "rank " : "ranks ", ranks, " of ", group_->size(), ",");
}

// The averaged ones, if there are such, while what it returns lives; with buffers that all ranks have.
std::unique_ptr<Ema::Use> Trainer::weights_to_judge() {
  if (group_) share_buffers();
  return step_->ema() ? std::make_unique<Ema::Use>(*step_->ema()) : nullptr;
}

Metrics Trainer::evaluate_average(const Dataset& data, const std::vector<int64_t>& samples, const std::string& split, bool progress) {
  const auto average = weights_to_judge();
  return evaluate(task_, data, samples, split, progress && leads(), nullptr, group_);
}

// Whether a validation follows the epoch, or, where it is due, of a method kNN.
bool Trainer::judges() const {
  const TrainOptions& o = task_.options;
  const int64_t epoch = at_.epoch + 1;
  return task_.method ? epoch == o.epochs || (o.knn_every > 0 && epoch % o.knn_every == 0) : !split_.val.empty();
}

Metrics Trainer::judge(bool progress) {
  const TrainOptions& o = task_.options;
  if (!task_.method) return evaluate_average(task_.data.train, split_.val, "val", progress);
  const auto average = weights_to_judge();
  std::vector<int64_t> bank = split_.train;  // in random order
  if (o.knn_bank > 0 && o.knn_bank < int64_t(bank.size())) bank.resize(size_t(o.knn_bank));
  return evaluate_features(task_, bank, progress && leads(), group_);
}

// The weights of the best validation, in place of the last ones.
void Trainer::take_best(const Load& load) {
  if (task_.options.exported != "best" || !at_.best || at_.best->step == steps()) return;
  if (leads()) load(at_.best->step);
  if (group_) replicate(*group_, step_->replicated());
}

bool Trainer::fit(const Report& report, const Save& save, bool progress, const Load& load) {
  RT_CHECK_AS(UsageError, task_.options.trace.empty() || steps() < task_.options.trace_step, "--trace-step ", task_.options.trace_step,
              ": the run is at step ", steps(), " already; name a later one");
  for (const Device device : task_.devices()) reset_peak_memory(device);
  const auto emit = [&](Metrics m, int64_t epoch) {
    m.epoch = epoch;
    m.step = steps();
    if (m.loss && std::isnan(*m.loss)) m.loss = std::numeric_limits<double>::quiet_NaN();  // without a sign, which says nothing
    if (leads()) report(m);
    RT_CHECK_AS(Error, std::isfinite(m.loss.value_or(0)), "the ", m.split, " loss became ", *m.loss, whose_loss(), " by step ", m.step,
                " (epoch ", epoch, ", learning rate ", schedule_.at(m.step),
                "); lower --lr, or find the operation with RINGTAPE_NAN=1");
    return m;
  };
  const TrainOptions& o = task_.options;
  StepLog log(o.log_every, leads() ? report : Report([](const Metrics&) {}));
  const int64_t first = at_.epoch;
  left_.emplace(steps(), o.epochs * steps_per_epoch());
  const auto with_time_left = [&](Metrics m) {  // told once
    if (at_.epoch == first) m.left_s = left_->seconds(steps());
    return m;
  };
  while (at_.epoch < o.epochs) {
    if (!train_epoch(log, save, progress)) return false;
    const int64_t epoch = at_.epoch + 1;
    if (diary_) diary_(own_figures());
    const bool judged = judges();
    emit(judged ? train_metrics() : with_time_left(train_metrics()), epoch);
    bool best = false;
    if (judged) {
      const Metrics m = emit(with_time_left(judge(progress)), epoch);
      if (task_.method && task_.method->has_probe())
        emit(evaluate_average(task_.data.test, all_samples(task_.data.test), "probe", progress), epoch);
      best = !at_.best || *m.top1 > at_.best->top1;
      if (best) at_.best = TrainState::Best{steps(), *m.top1};
    }
    at_.epoch = epoch, at_.batch = 0, at_.seconds = {}, at_.traffic = {};
    tally_ = {};
    own_loss_ = {}, own_losses_ = own_share_ = pending_share_ = 0;
    const bool stop = epoch < o.epochs && any_of(group_, stop_requested());
    const int64_t every = o.checkpoint_every;
    if (stop || (every > 0 && (best || epoch % every == 0 || epoch == o.epochs))) checkpoint(save);
    if (stop) return false;
  }
  take_best(load);
  if (!task_.method) emit(evaluate_average(task_.data.test, all_samples(task_.data.test), "test", progress), o.epochs);
  return true;
}

std::vector<TensorFile> Trainer::files() const {
  const auto metadata = weights_metadata(task_);
  std::vector<TensorFile> out = {{"model.safetensors", weights_of(*task_.model), metadata}, {"optimizer.safetensors", step_->state()}};
  if (step_->ema()) out.push_back({"ema.safetensors", step_->average(), metadata});
  return out;
}

Course Trainer::course() const {
  Course out{task_.options, identity_of(task_.data), steps_per_epoch(), {}};
  for (const TensorFile& file : files()) out.files.push_back(file.name);
  return out;
}

void Trainer::export_weights(const std::string& path) const {
  const std::vector<NamedTensor> weights = step_->ema() ? step_->average() : weights_of(*task_.model);
  write_safetensors(path, task_.method ? below("backbone", weights) : weights, weights_metadata(task_));
}

void Trainer::restore(const TrainState& state) {
  at_ = state;
  tally_ = leads() ? Tally(state.tally) : Tally();
  step_->set_count(state.step, state.parameter_steps);
  saved_step_ = state.step;
  default_generator().set_state(own_random(state));
}

// Ranks draw from places of one stream that are far apart, each its own dropout, and go on from where they were if there are as many.
RandomState Trainer::own_random(const TrainState& state) const {
  constexpr uint64_t kApart = uint64_t{1} << 48;
  RandomState own = state.random;
  if (!group_) return own;
  if (state.counters.size() == size_t(group_->size())) own.counter = uint64_t(state.counters[size_t(group_->rank())]);
  else own.counter += kApart * uint64_t(group_->rank());
  return own;
}

void Trainer::share_state() {
  at_.step = steps(), at_.parameter_steps = step_->own_counts();
  constexpr const char* kFrom = "the state of rank 0";
  restore(parse_train_state(parse_json(comm::broadcast_text(*group_, to_json(at_).dump(), 0), kFrom), kFrom));
  replicate(*group_, step_->replicated());
}

// Each rank's running statistics are of its own samples: those of rank 0 count, as with PyTorch's DistributedDataParallel.
void Trainer::share_buffers() {
  std::vector<Tensor> buffers;
  for (const nn::Named& b : nn::named_buffers(*task_.model)) buffers.push_back(b.tensor->detach());
  replicate(*group_, buffers);
}

}  // namespace ringtape
