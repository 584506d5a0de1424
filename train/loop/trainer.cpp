#include "train/loop/trainer.h"

#include <cmath>
#include <limits>
#include <utility>

#include "autograd/create.h"
#include "comm/parallel/agreement.h"
#include "nn/mode_guard.h"
#include "train/evaluation/features.h"
#include "train/evaluation/snapshot_parts.h"
#include "train/report/progress.h"
#include "train/run/process_memory.h"
#include "train/run/stop.h"
#include "train/run/time_text.h"
#include "train/weights/weights.h"

namespace ringtape {

Trainer::Trainer(Training parts)
    : p_(std::move(parts)), meter_(p_, at_, [this](Metrics m) { write(m); }), stop_(p_, at_),
      recovery_(p_, at_, meter_) {
  at_.random = default_generator().state();
}

bool Trainer::fit(const Report& report, const Save& save, bool progress, const Load& load) {
  report_ = report, save_ = save;
  p_.evaluation.progress = progress && leads();
  p_.evaluation.weights = p_.step->placement().gathered_weights();
  p_.evaluation.interrupted = stop_requested;
  for (const auto& callback : p_.callbacks) callback->begins(p_.task, p_.group);
  if (!p_.membership || p_.membership->assignment().number == 1) p_.trace.check_after(steps());
  if (leads()) p_.trace.check();
  for (const Device device : p_.task.devices()) reset_peak_memory(device);
  const int64_t first = at_.epoch, every = p_.checkpoint.every;
  stop_.begin(), meter_.begin();
  try {
    for (bool over = stop_.ends(); !over;) {
      if (!train_epoch()) return false;
      if (!is_whole_epoch()) break;
      const bool best = report_epoch(at_.epoch == first);
      ++at_.epoch, at_.batch = 0, at_.seconds = {}, at_.traffic = {}, at_.reported = false;
      meter_.restart();
      for (const auto& callback : p_.callbacks) callback->after_epoch(at_.epoch);
      over = stop_.ends();
      const bool stop = !over && stop_.signalled();
      if (stop || (every > 0 && (best || at_.epoch % every == 0 || over))) recovery_.checkpoint(save_);
      if (stop) return false;
    }
    if (at_.batch > 0) (void)report_epoch(false);  // a part of one
    const auto most = [this](int64_t bytes) { return int64_t(max_over_ranks(p_.group, double(bytes))); };
    memory_ = {most(state_bytes()), most(peak_process_bytes())};
    recovery_.take_best(load);
    test();
  } catch (const SharedPasses::Interrupted& pass) {
    stop_.interrupted(pass.ranks);
    recovery_.checkpoint(save_);
    return false;
  }
  for (const auto& callback : p_.callbacks) callback->ends();
  return true;
}

bool Trainer::train_epoch() {
  const nn::ModeGuard mode(*p_.task.model, true);
  p_.task.model->set_epoch(at_.epoch);
  const int64_t every = p_.checkpoint.steps;
  Progress bar(concat("epoch ", at_.epoch + 1, "/", p_.epochs), steps_per_epoch(), p_.evaluation.progress);
  meter_.resume();
  Loader::Epoch batches = p_.loader->epoch(at_.epoch, at_.batch);
  while (at_.batch < steps_per_epoch()) {
    // Before a step, not after the one before: a training that a signal stops between them does it once it goes on.
    if (p_.val_every > 0 && at_.batch > 0 && steps() % p_.val_every == 0 && at_.validated != steps()) {
      if (!meter_.settle()) return true;
      const bool best = judge(false);
      at_.validated = steps();
      if (best && p_.checkpoint.every > 0) recovery_.checkpoint(save_);
      meter_.resume();
    }
    train_step(batches);
    if (!meter_.finite()) break;
    tell_estimate();
    if (bar.due() && meter_.tally().samples() > 0) bar.update(at_.batch, progress_note());
    using enum StopRule::Then;
    const StopRule::Then then = stop_.after_step();
    if (then == change) {
      (void)meter_.settle();
      throw RanksChange("ranks come or go");
    }
    if (is_whole_epoch() || (then == go_on && (every == 0 || steps() % every != 0))) continue;
    if (!meter_.settle()) return true;
    if (then != end || p_.checkpoint.every > 0) recovery_.checkpoint(save_);
    meter_.skip_traffic();
    if (then != go_on) return then == end;
  }
  (void)meter_.settle();
  return true;
}

static double& part_of(PassSeconds& seconds, StepPhase phase) {
  return phase == StepPhase::forward    ? seconds.forward
         : phase == StepPhase::backward ? seconds.backward
                                        : seconds.optimizer;
}

void Trainer::train_step(Loader::Epoch& batches) {
  LapTimer watch;
  const auto ended = [&](StepPhase phase) {
    part_of(at_.seconds, phase) += watch.lap();
    p_.trace.ended(phase);
  };
  const Batch* batch = batches.next();
  at_.seconds.data += watch.lap();
  const double lr = p_.schedule.at(steps());
  if (const auto momentum = p_.schedule.momentum_at(steps())) p_.step->set_momentum(*momentum);
  p_.trace.begin(steps() + 1);
  comm::Activity::process().set_step(steps() + 1);
  recovery_.begin_step();
  p_.learner->begin_step({steps(), p_.schedule.steps(), at_.epoch, p_.seed,
                          [&](const std::function<void()>& write) { p_.step->write_weights(write); }});
  const Step::Result result = p_.step->run(
      batch->images(), batch->labels(), lr, ended,
      {.samples = batch->global_size, .riders = stop_.ask(), .counts = meter_.counts_all(), .apart = p_.trace.on()});
  ++at_.batch, at_.reported = false;
  recovery_.end_step();
  stop_.count_time();
  meter_.add(result, *batch, lr, batches.images_per_s());
  p_.trace.end(p_.step->placement().reducer(), p_.group);  // may be a collective: the step is counted and logged
  for (const auto& callback : p_.callbacks) callback->after_step(steps(), result);
}

void Trainer::tell_estimate() {
  if (estimate_ && stop_.seconds_passed() >= estimate_after_ && worth_telling(stop_.seconds_left()))
    std::exchange(estimate_, nullptr)(stop_.seconds_left());
}

std::string Trainer::progress_note() const {
  const double left = stop_.seconds_left();
  const bool more = p_.epochs > 1 && worth_telling(left);  // more than the bar itself says
  const std::string in_all = more ? concat(", ", duration_text(left), " left in total") : "";
  return concat("loss ", std::round(1e4 * meter_.tally().loss()) / 1e4, in_all);
}

bool Trainer::report_epoch(bool first) {
  const int64_t epoch = epochs_begun();
  const bool judged = is_whole_epoch() ? p_.learner->judges_after(epoch, p_.epochs) : p_.learner->facts.judged_at_end;
  if (!at_.reported) {
    if (rank_log_) rank_log_(meter_.own_figures());
    Metrics trained = meter_.metrics();
    if (first && !judged) trained.left_s = stop_.seconds_left();  // else judge() tells it
    write_pass(std::move(trained));
    at_.reported = true;
  }
  return judged && judge(first);
}

static double score_of(const Metrics& m, const std::string& best_by) {
  return best_by == "loss" ? -*m.loss : best_by == "balanced" ? *m.balanced : *m.top1;
}

bool Trainer::judge(bool first) {
  const auto average = recovery_.weights_to_judge();
  const bool ends_here = !ended_by().empty(), within = !is_whole_epoch() && !ends_here;
  std::optional<Snapshot> snapshot;
  if (!within) snapshot = snapshot_of(p_.learner->facts.judged_split, ends_here);
  std::vector<Metrics> figures = p_.learner->judge(p_.evaluation, snapshot ? &*snapshot : nullptr);
  show(snapshot);
  if (first) figures[0].left_s = stop_.seconds_left();
  if (within) figures[0].steps = at_.batch;
  for (const Metrics& m : figures) write_pass(m);
  // Of the sums of all ranks; their decisions must not differ by an order of additions.
  const double score = max_over_ranks(p_.group, score_of(figures[0], p_.checkpoint.best_by));
  const bool best = !at_.best || score > at_.best->score || at_.best->step == steps();
  if (best) at_.best = TrainState::Best{steps(), score};
  if (!ends_here) note_validation(at_.improved, epochs_begun(), score, p_.limits.min_delta);
  if (is_whole_epoch()) {
    p_.schedule.watch(steps(), score);
    at_.watched = p_.schedule.watched();
  }
  return best;
}

void Trainer::test() {
  averaged_.reset();
  averaged_ = recovery_.weights_to_judge();
  std::optional<Snapshot> snapshot = snapshot_of("test", true);
  const bool may_end = saved_step() == steps() && !p_.membership;
  p_.evaluation.interrupted = may_end ? stop_requested : nullptr;
  const std::vector<Metrics> figures = p_.learner->test(p_.evaluation, snapshot ? &*snapshot : nullptr);
  for (const Metrics& m : figures) write_pass(m);
  if (!figures.empty()) show(snapshot);
}

void Trainer::write(Metrics& m) const {
  if (m.loss && std::isnan(*m.loss)) m.loss = std::numeric_limits<double>::quiet_NaN();  // without a sign
  if (leads()) {
    report_(m);
    for (const auto& callback : p_.callbacks) callback->reported(m);
  }
  if (backlog_) backlog_(m);
}

void Trainer::write_pass(Metrics m) const {
  m.epoch = epochs_begun(), m.step = steps();
  write(m);
  RT_CHECK_AS(Error, std::isfinite(m.loss.value_or(0)), "the ", m.split, " loss became ", *m.loss, meter_.whose_loss(),
              " by step ", m.step, " (epoch ", m.epoch, ", learning rate ", p_.schedule.at(m.step),
              "); lower --lr, or find the operation with RINGTAPE_NAN=1");
}

Course Trainer::course() const {
  Course out = p_.course;
  for (const TensorFile& file : files()) out.files.push_back(file.name);
  return out;
}

Carried Trainer::carry() {
  averaged_.reset();
  return recovery_.carry();
}

void Trainer::export_weights(const std::string& path) const {
  p_.step->exchange([&] { write_safetensors(path, p_.learner->exported(p_.step->weights()), p_.metadata); });
}

// An empty snapshot if one is due after this epoch, the last one, or after one since it was judged before: after the
// first, and at equal distances. `last`: a limit makes it the last one.
std::optional<Snapshot> Trainer::snapshot_of(const std::string& split, bool last) const {
  const int64_t most = p_.snapshots, epoch = epochs_begun(), epochs = p_.epochs;
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
    if (!snapshot_) return;
    add_filters(*snapshot, p_.task.network(), p_.task.data.train.image());
    snapshot_(*snapshot);
  });
}

}  // namespace ringtape
