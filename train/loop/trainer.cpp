#include "train/loop/trainer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "autograd/create.h"
#include "comm/parallel/agreement.h"
#include "nn/mode_guard.h"
#include "train/evaluation/features.h"
#include "train/evaluation/snapshot_parts.h"
#include "train/run/process_memory.h"
#include "train/run/stop.h"
#include "train/run/time_text.h"

namespace ringtape {

Trainer::Trainer(Training parts) : p_(std::move(parts)) {
  at_.random = default_generator().state();
  if (!p_.limits.max_time.empty()) time_limit_ = seconds_of(p_.limits.max_time, "--max-time");
}

static double& part_of(PassSeconds& seconds, Phase phase) {
  return phase == Phase::forward ? seconds.forward : phase == Phase::backward ? seconds.backward : seconds.optimizer;
}

void Trainer::train_step(Loader::Epoch& batches, StepLog& log) {
  Stopwatch watch;
  const auto ended = [&](Phase phase) {
    part_of(at_.seconds, phase) += watch.lap();
    p_.trace.ended(phase);
  };
  const Batch* batch = batches.next();
  at_.seconds.data += watch.lap();
  loader_images_per_s_ = batches.images_per_s();
  const double lr = p_.schedule.at(steps());
  if (const auto momentum = p_.schedule.momentum_at(steps())) p_.step->set_momentum(*momentum);
  p_.trace.begin(steps() + 1);
  comm::Activity::process().set_step(steps() + 1);
  if (p_.crew) remember();
  p_.learner->begin_step({steps(), p_.schedule.steps(), at_.epoch, p_.seed,
                          [&](const std::function<void()>& write) { p_.step->write_weights(write); }});
  asked_to_stop_ = stop_requested();
  const Step::Result result = p_.step->run(batch->images(), batch->labels(), lr, ended,
                                           {.samples = batch->whole,
                                            .riders = own_riders(asked_to_stop_),
                                            .counts = counts_all(),
                                            .apart = p_.trace.on()});
  const Tally::Totals& right = result.right;
  if (counts_all()) tally_.add(result.loss.copy_to(Device{}).item(), batch->whole, right.top1, right.top5);
  else tally_.add(result.loss, result.ranks, batch->y.size());  // reads the previous step
  ++at_.batch, at_.reported = false;
  at_.trained += fitting_.lap();
  before_.in_step = false;
  if (result.spread.defined()) spread_ = Readback(result.spread);
  log.add(*p_.step, result, batch->whole, at_.epoch + 1, lr);
  if (p_.crew) log.flush();
  p_.trace.end(p_.step->placement().reducer(), p_.group);  // may be a collective: the step is counted and logged
  if (p_.group.size() > 1 && tally_.finite())
    add_own_loss(result.own, double(batch->y.size()) / double(std::max<int64_t>(batch->whole, 1)));
  for (const auto& callback : p_.callbacks) callback->after_step(steps(), result);
}

void Trainer::show_progress(Progress& bar) const {
  if (!bar.due() || tally_.samples() == 0) return;
  const double left = seconds_left();
  const bool more = p_.epochs > 1 && worth_telling(left);  // more than the bar itself says
  const std::string in_all = more ? concat(", ", duration_text(left), " left in total") : "";
  bar.update(at_.batch, concat("loss ", std::round(1e4 * tally_.loss()) / 1e4, in_all));
}

void Trainer::settle(StepLog& log) {
  tally_.finish();
  log.flush();
  at_.seconds.whole += whole_.lap();
  count_traffic();
}

// Before the next step, not after the last one: a training that a signal stops between them does it once it goes on.
bool Trainer::validation_is_due() const {
  return p_.val_every > 0 && at_.batch > 0 && steps() % p_.val_every == 0 && at_.validated != steps();
}

bool Trainer::train_epoch(StepLog& log, const Report& report, const Save& save, bool progress) {
  const nn::ModeGuard mode(*p_.task.model, true);
  p_.task.model->set_epoch(at_.epoch);
  const int64_t every = p_.checkpoint.steps;
  whole_ = {};
  Progress bar(concat("epoch ", at_.epoch + 1, "/", p_.epochs), steps_per_epoch(), progress && leads());
  skip_traffic();
  Loader::Epoch batches = p_.loader->epoch(at_.epoch, at_.batch);
  while (at_.batch < steps_per_epoch()) {
    if (validation_is_due()) {
      settle(log);
      if (!tally_.finite()) return true;
      const bool best = judge(report, at_.epoch + 1, progress, false);
      at_.validated = steps();
      if (best && p_.checkpoint.every > 0) checkpoint(save);
      skip_traffic();
      whole_.lap();
    }
    train_step(batches, log);
    if (!tally_.finite()) break;
    show_progress(bar);
    const Wish wished = wish();
    const bool stop = wished == Wish::stop;
    if (wished == Wish::change) {
      settle(log);
      throw RanksChange("ranks come or go");
    }
    const bool end = wished == Wish::end;
    if (is_whole_epoch() || !(stop || end || (every > 0 && steps() % every == 0))) continue;
    settle(log);
    if (!tally_.finite()) return true;
    if (!end || p_.checkpoint.every > 0) checkpoint(save);
    skip_traffic();
    if (stop) return false;
    if (!end) continue;
    ended_by_ = steps() == p_.schedule.steps() ? "max-steps" : "max-time";
    return true;
  }
  settle(log);
  return true;
}

Riders Trainer::own_riders(bool stop) const {
  Riders out{};
  out[kStop] = stop, out[kChange] = p_.crew && p_.crew->change_is_due(), out[kEnd] = time_is_up();
  return out;
}

// A rank that is asked to stop leaves the others to go on, if there are enough of them.
Trainer::Wish Trainer::wish() const {
  if (p_.crew && p_.crew->is_last()) return Wish::stop;
  const comm::Reducer* const reducer = p_.step->placement().reducer();
  const Riders asked = reducer ? reducer->riders() : own_riders(stop_requested());
  if (stops_all(int64_t(asked[kStop]))) return Wish::stop;
  if (asked[kStop] > 0 || asked[kChange] > 0) return Wish::change;
  return steps() == p_.schedule.steps() || asked[kEnd] > 0 ? Wish::end : Wish::none;
}

bool Trainer::stops_all(int64_t stops) const {
  const int64_t needed = p_.crew ? std::max(p_.crew->options().min_ranks, 1) : p_.group.size();
  return stops > 0 && p_.group.size() - stops < needed;
}

// Whether a limit ends the training between epochs, or where it goes on from; the same on all ranks.
bool Trainer::ends() {
  const LimitOptions& limits = p_.limits;
  const int64_t epoch = at_.epoch;
  if (epoch == p_.epochs) return true;
  if (is_whole_epoch()) return false;  // ranks changed after its last step: it is still to be reported
  const bool waited = limits.patience > 0 && at_.improved && p_.learner->judges_after(epoch, p_.epochs) &&
                      epoch - at_.improved->epoch >= limits.patience;
  if (steps() >= p_.schedule.steps())
    ended_by_ = "max-steps";
  else if (time_limit_ && any_of(p_.group, time_is_up()))
    ended_by_ = "max-time";
  else if (waited && at_.batch == 0)
    ended_by_ = "patience";
  return !ended_by_.empty();
}

// Reads the value of the previous step, which the device has finished.
void Trainer::add_own_loss(const Tensor& own, double share) {
  if (own_loss_.defined()) own_losses_ += own_loss_.get().item();
  own_share_ += pending_share_;
  own_loss_ = own.defined() ? Readback(own) : Readback();
  pending_share_ = own.defined() ? share : 0;
}

// Of what an evaluation or a checkpoint gathered.
void Trainer::skip_traffic() {
  if (p_.task.replicas) travelled_ = p_.task.replicas->traffic().bytes();
  if (p_.step->placement().reducer()) counted_ = p_.step->placement().traffic();
}

void Trainer::count_traffic() {
  if (p_.task.replicas) {
    const int64_t now = p_.task.replicas->traffic().bytes();
    at_.traffic.bytes += now - std::exchange(travelled_, now);
  }
  if (!p_.step->placement().reducer()) return;
  const comm::Reducer::Totals now = p_.step->placement().traffic();
  at_.traffic.bytes += now.bytes - counted_.bytes;
  at_.traffic.seconds += (now.communicating - counted_.communicating).count();
  at_.traffic.exposed += (now.exposed - counted_.exposed).count();
  counted_ = now;
}

double Trainer::seconds_left() const {
  const double left = left_->seconds(steps());
  return time_limit_ ? std::clamp(*time_limit_ - at_.trained, 0.0, left) : left;
}

Tally Trainer::whole_tally() const { return counts_all() ? tally_ : of_all(p_.group, tally_); }

Metrics Trainer::train_metrics() {
  Metrics m = epoch_metrics(p_.group, whole_tally(), "train", at_.seconds.whole, p_.task.devices());
  m.lr = p_.schedule.at(steps() - 1);
  if (!p_.learner->facts.counts_right) m.top1 = m.top5 = std::nullopt;
  if (spread_.defined()) m.spread = spread_.get().item();
  warn_if_collapsed(*m.loss, m.spread);
  m.data_s = at_.seconds.data, m.forward_s = at_.seconds.forward;
  m.backward_s = at_.seconds.backward, m.optimizer_s = at_.seconds.optimizer;
  m.steps = at_.batch;
  if (p_.task.data.train.is_encoded()) m.loader_images_per_s = loader_images_per_s_;
  if (p_.step->placement().reducer() || p_.task.replicas) m.comm_bytes = double(at_.traffic.bytes);
  // On a GPU the host only submits work and cannot time it.
  const bool host_waits = p_.task.device.type == DeviceType::cpu;
  if (p_.step->placement().reducer() && host_waits) m.comm_s = at_.traffic.seconds, m.exposed_s = at_.traffic.exposed;
  return m;
}

void Trainer::emit(const Report& report, Metrics m, int64_t epoch) const {
  m.epoch = epoch;
  m.step = steps();
  if (m.loss && std::isnan(*m.loss)) m.loss = std::numeric_limits<double>::quiet_NaN();  // without a sign
  if (leads()) report(m);
  if (journal_) journal_(m);
  RT_CHECK_AS(Error, std::isfinite(m.loss.value_or(0)), "the ", m.split, " loss became ", *m.loss, whose_loss(),
              " by step ", m.step, " (epoch ", epoch, ", learning rate ", p_.schedule.at(m.step),
              "); lower --lr, or find the operation with RINGTAPE_NAN=1");
}

EvalOptions Trainer::passes(bool progress, bool may_end) const {
  EvalOptions out = p_.evaluation;
  out.progress = progress && leads();
  if (may_end) out.interrupted = stop_requested;
  out.weights = p_.step->placement().gathered_weights();
  return out;
}

static double score_of(const Metrics& m, const std::string& best_by) {
  return best_by == "loss" ? -*m.loss : best_by == "balanced" ? *m.balanced : *m.top1;
}

bool Trainer::judge(const Report& report, int64_t epoch, bool progress, bool first) {
  const auto average = weights_to_judge();
  const bool ends_here = !ended_by_.empty(), within = !is_whole_epoch() && !ends_here;
  std::optional<Snapshot> snapshot;
  if (!within) snapshot = snapshot_of(epoch, p_.learner->facts.judged_split, ends_here);
  std::vector<Metrics> figures = p_.learner->judge(passes(progress, true), snapshot ? &*snapshot : nullptr);
  show(snapshot);
  if (first) figures[0].left_s = seconds_left();
  if (within) figures[0].steps = at_.batch;
  for (const Metrics& m : figures) emit(report, m, epoch);
  // Of the sums of all ranks; their decisions must not differ by an order of additions.
  const double score = max_over_ranks(p_.group, score_of(figures[0], p_.checkpoint.best_by));
  const bool best = !at_.best || score > at_.best->score || at_.best->step == steps();
  if (best) at_.best = TrainState::Best{steps(), score};
  if (!ends_here) note_validation(at_.improved, epoch, score, p_.limits.min_delta);
  if (is_whole_epoch()) {
    p_.schedule.watch(steps(), score);
    at_.watched = p_.schedule.watched();
  }
  return best;
}

void Trainer::test(const Report& report, bool progress) {
  averaged_.reset();
  averaged_ = weights_to_judge();
  std::optional<Snapshot> snapshot = snapshot_of(epochs_begun(), "test", true);
  const bool may_end = saved_step_ == steps() && !p_.crew;
  const std::vector<Metrics> figures = p_.learner->test(passes(progress, may_end), snapshot ? &*snapshot : nullptr);
  for (const Metrics& m : figures) emit(report, m, epochs_begun());
  if (!figures.empty()) show(snapshot);
}

bool Trainer::report_epoch(const Report& report, bool progress, bool first) {
  const int64_t epoch = at_.epoch + 1;
  const bool judged = is_whole_epoch() ? p_.learner->judges_after(epoch, p_.epochs) : p_.learner->facts.judged_at_end;
  if (!at_.reported) {
    if (diary_) diary_(own_figures());
    Metrics trained = train_metrics();
    if (first && !judged) trained.left_s = seconds_left();  // else judge() tells it
    emit(report, std::move(trained), epoch);
    at_.reported = true;
  }
  return judged && judge(report, epoch, progress, first);
}

void Trainer::change_or_stop(int64_t stops) {
  asked_to_stop_ = stop_requested();
  if (!stops_all(stops)) throw RanksChange("ranks come or go");
}

int64_t Trainer::most_on_a_rank(int64_t bytes) const { return int64_t(max_over_ranks(p_.group, double(bytes))); }

bool Trainer::fit(const Report& report_metrics, const Save& save, bool progress, const Load& load) {
  const Report report = [&](const Metrics& m) {
    report_metrics(m);
    for (const auto& callback : p_.callbacks) callback->reported(m);
  };
  for (const auto& callback : p_.callbacks) callback->begins(p_.task, p_.group);
  if (!p_.crew || p_.crew->deal().number == 1) p_.trace.check_after(steps());
  if (leads()) p_.trace.check();
  for (const Device device : p_.task.devices()) reset_peak_memory(device);
  const int64_t first = at_.epoch, every = p_.checkpoint.every;
  StepLog log(p_.log_every, [&](const Metrics& m) {
    if (leads()) report(m);
    if (journal_) journal_(m);
  });
  left_.emplace(steps(), p_.schedule.steps());
  fitting_ = {};
  for (bool over = ends(); !over;) {
    bool best = false;
    try {
      if (!train_epoch(log, report, save, progress)) return false;
      if (!is_whole_epoch()) break;
      best = report_epoch(report, progress, at_.epoch == first);
    } catch (const SharedPasses::Interrupted& pass) {
      change_or_stop(pass.ranks);
      checkpoint(save);
      return false;
    }
    const int64_t epoch = at_.epoch + 1;
    at_.epoch = epoch, at_.batch = 0, at_.seconds = {}, at_.traffic = {}, at_.reported = false;
    tally_ = {};
    own_loss_ = {}, own_losses_ = own_share_ = pending_share_ = 0;
    for (const auto& callback : p_.callbacks) callback->after_epoch(epoch);
    // With a crew, some of the ranks leave after the next step.
    over = ends();
    const bool stop = !over && (p_.crew ? !any_of(p_.group, !stop_requested()) : any_of(p_.group, stop_requested()));
    if (stop || (every > 0 && (best || epoch % every == 0 || over))) checkpoint(save);
    if (stop) return false;
  }
  try {
    if (at_.batch > 0) (void)report_epoch(report, progress, false);  // a part of one
    memory_ = {most_on_a_rank(state_bytes()), most_on_a_rank(peak_process_bytes())};
    take_best(load);
    test(report, progress);
  } catch (const SharedPasses::Interrupted& pass) {
    change_or_stop(pass.ranks);
    checkpoint(save);
    return false;
  }
  for (const auto& callback : p_.callbacks) callback->ends();
  return true;
}

// An empty snapshot if one is due after this epoch, the last one, or after one since it was judged before: after the
// first, and at equal distances. `last`: a limit makes it the last one.
std::optional<Snapshot> Trainer::snapshot_of(int64_t epoch, const std::string& split, bool last) const {
  const int64_t most = p_.snapshots, epochs = p_.epochs;
  if (most == 0) return {};
  const int64_t every = (epochs + most - 1) / most;
  bool due = last || epoch == epochs;
  for (int64_t e = epoch; e > 0 && !due && (e == epoch || !p_.learner->judges_after(e, epochs)); --e)
    due = e == 1 || e % every == 0;
  if (!due) return {};
  Snapshot out;
  out.epoch = epoch, out.step = steps(), out.split = split;
  return out;
}

void Trainer::show(std::optional<Snapshot>& snapshot) const {
  if (!snapshot) return;
  p_.step->exchange([&] {
    if (!album_) return;
    add_filters(*snapshot, p_.task.network(), p_.task.data.train.image());
    album_(*snapshot);
  });
}

}  // namespace ringtape
