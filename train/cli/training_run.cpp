#include "train/cli/training_run.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "autograd/ops.h"
#include "core/cgroup.h"
#include "core/env.h"
#include "core/log.h"
#include "core/printable.h"
#include "train/cli/common.h"
#include "train/cli/introduction.h"
#include "train/evaluation/snapshot_pictures.h"
#include "train/io/file.h"
#include "train/io/json.h"
#include "train/io/look.h"
#include "train/loop/exported.h"
#include "train/loop/model_state.h"
#include "train/run/earlier_steps.h"
#include "train/run/environment.h"
#include "train/run/rank_log.h"
#include "train/run/save_hook.h"
#include "train/run/snapshot_files.h"
#include "train/run/stop.h"
#include "train/view/report.h"

namespace ringtape::cli {
namespace {

using Clock = std::chrono::steady_clock;

// Writes a run's lines to train.log, and to standard output as text or, with --json, as the lines of metrics.jsonl.
class Output {
 public:
  Output(RunDir& run, bool json) : run_(run), json_(json) {
    set_log_sink([this](const std::string& line) { run_.log(line); });
  }
  ~Output() { set_log_sink({}); }
  void line(const std::string& text) {
    run_.log(text);
    if (!json_) print_line(printable(text));
  }
  void log(const std::string& text) { run_.log(text); }  // writes to train.log only
  void json(const std::string& text) {
    if (json_) print_line(text);
  }

 private:
  RunDir& run_;
  bool json_;
};

// What TensorBoard gets of a snapshot: its pictures, and the distribution of each parameter's values.
void add_events(EventFile& events, const Snapshot& snapshot, nn::Module& model) {
  for (const auto& [name, pixels] : pictures(snapshot))
    events.image(concat(snapshot.split, "/", name), snapshot.step, pixels);
  for (const nn::Named& p : nn::named_parameters(model))
    events.histogram("weights/" + p.name, snapshot.step, to(contiguous(p.tensor->detach()), Device{}).span<float>());
}

// The training on rank 0 and the files of its run.
class TrainingRun {
 public:
  TrainingRun(const RunSetup& setup, Trainer& trainer, const World& world, Clock::time_point begin)
      : setup_(setup), trainer_(trainer), world_(world), begin_(begin), o_(setup.options),
        run_(claim_run_path(o_.run.name, setup.name(), o_.data.set.name), earlier(o_.run)), out_(run_, o_.run.json),
        hook_(run_, on_save(o_.run), o_.run.on_save_timeout), album_(run_, hook_),
        checkpoints_(run_.file("checkpoints"), o_.checkpoint.keep,
                     [this](const std::string& path) { return hook_.needs(path); }) {}

  bool train(const Invocation& invocation, bool said);  // false: a signal stopped it

 private:
  std::string resume();
  void introduce(const Invocation& invocation, bool said);
  void save(MetricsLog& log, const Course& course);
  void load_best(int64_t step, const Course& course) const;
  void stopped();
  void finish(MetricsLog& log, const std::vector<Metrics>& all);
  bool fit(const Invocation& invocation, bool said);

  const RunSetup& setup_;
  Trainer& trainer_;
  const World& world_;
  const Clock::time_point begin_;
  const TrainOptions& o_;
  RunDir run_;
  Output out_;
  SaveHook hook_;
  SnapshotFiles album_;
  const Checkpoints checkpoints_;
  const std::function<void(const std::string&)> say_ = [this](const std::string& text) { out_.line(text); };
};

// Restores the trainer from the newest complete checkpoint; returns what it says about that. Reads all that it needs
// before it changes anything. Throws IoError if something cannot be read, or if there is no checkpoint although the run
// has saved one.
std::string TrainingRun::resume() {
  const Course course = trainer_.course();
  const int64_t epochs = o_.trainer.epochs;
  const auto found =
      checkpoints_.newest(course, [&](const std::string& why) { out_.line("checkpoint not used: " + why); });
  if (!found) {
    TrainOptions before;
    if (const std::string path = run_.file("config.toml"); is_there(path)) apply_settings(before, {read_config(path)});
    const std::string sign = sign_of_checkpoints(run_, before.checkpoint, course.steps_per_epoch);
    RT_CHECK_AS(IoError, sign.empty(), run_.file("checkpoints"), ": has no checkpoint, but ", sign,
                "; bring its checkpoints back (is their disk mounted?), or start again with --overwrite");
    return "resume no checkpoint yet: starting from the beginning";
  }
  MetricsLog::check(run_);
  RT_CHECK_AS(UsageError, found->state.epoch <= epochs, "--epochs ", epochs, ": the run has already trained ",
              found->state.epoch, " epochs");
  Checkpoints::load(found->path, trainer_.files());
  trainer_.restore(found->state);
  if (hook_.used()) hook_.earlier(checkpoints_, found->state.step, course);  // before old ones are removed
  checkpoints_.settle(found->state);
  run_.note_checkpoint();
  album_.go_on_from(found->state.epoch);
  const int before = std::max(int(found->state.counters.size()), 1), ranks = world_.size();
  const std::string others = concat("; it was written by ", before, before == 1 ? " rank" : " ranks", ", and ", ranks,
                                    " do not go on with the same bits");
  return concat("resume ", found->path, ": step ", found->state.step,
                found->state.epoch < epochs ? concat(", in epoch ", found->state.epoch + 1) : ", the last",
                before == ranks ? "" : others);
}

// Writes what the run is, and says it.
void TrainingRun::introduce(const Invocation& invocation, bool said) {
  write_file(run_.file("config.toml"), config_text(o_));
  Json about = environment(invocation.command_line);
  about["ranks"] = world_.size(), about["steps_per_epoch"] = trainer_.steps_per_epoch();
  write_file(run_.file("env.json"), about.text(2) + "\n");
  if (const std::string path = run_.file(kTrainedOnFile); !is_there(path))
    write_trained_on(path, trained_on(setup_.data.train));
  if (said)
    out_.log(first_line(o_));
  else
    out_.line(first_line(o_));
  for (const std::string& note : setup_.data.notes) out_.log("warning: " + note);
  for (const std::string& line : introduction(setup_, trainer_, world_, run_)) out_.line(line);
}

void TrainingRun::save(MetricsLog& log, const Course& course) {
  album_.finish();
  TrainState state = trainer_.state();
  state.lengths = log.sync();
  hook_.checkpoint(checkpoints_.save(state, trainer_.files(), course));
  run_.note_checkpoint();
}

void TrainingRun::load_best(int64_t step, const Course& course) const {
  try {
    (void)check_checkpoint(checkpoints_.path_of(step), step, course);
    Checkpoints::load(checkpoints_.path_of(step), trainer_.files());
  } catch (const Error& e) {
    throw IoError(concat("--export best: ", e.what(), "; train --run ", run_.path(),
                         " --resume --export last exports the last weights"));
  }
}

void TrainingRun::stopped() {
  out_.line(concat("stopped by a signal at step ", trainer_.steps(),
                   ", with a checkpoint; resume it with --resume --run ", run_.path()));
  // The launcher of several ranks ends the last one ten seconds after the first by default (--grace).
  const auto most = Clock::now() + std::chrono::seconds(8);
  album_.finish();
  hook_.finish([&] { return world_.size() > 1 && Clock::now() > most; }, say_);  // or until a second signal
}

// Exports the weights and writes the summary and the report.
void TrainingRun::finish(MetricsLog& log, const std::vector<Metrics>& all) {
  const bool backbone = trainer_.learner().facts.exports_backbone;
  const std::string weights = run_.file(concat("exported/", exported_name(backbone)));
  trainer_.export_weights(weights);
  write_file(run_.file("exported/README.md"), exported_readme(setup_, exported_name(backbone), backbone));
  out_.line(
      concat("saved  ", weights, o_.step.ema > 0 ? ", the averaged weights" : "",
             o_.checkpoint.exported == "best" ? concat(", of step ", trainer_.state().best->step, ", the best") : ""));
  album_.finish();
  const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
  out_.json(log.finish(run_summary(setup_, trainer_, run_, all, world_.size(), seconds)).text());
  std::exception_ptr no_report;  // the export is delivered all the same
  try {
    write_report(run_.file(kReport), {run_.path()});
  } catch (const std::exception&) {
    no_report = std::current_exception();
  }
  hook_.exported(run_.file("exported"));
  hook_.finish(stop_requested, say_);
  if (no_report) std::rethrow_exception(no_report);
  if (hook_.used() && is_there(checkpoints_.path_of(trainer_.steps()))) checkpoints_.settle(trainer_.state());
}

bool TrainingRun::fit(const Invocation& invocation, bool said) {
  const std::string resumed = o_.run.resume ? resume() : "";
  introduce(invocation, said);
  if (!resumed.empty()) out_.line(resumed);
  const Course course = trainer_.course();
  trainer_.share_state();
  MetricsLog log(run_, trainer_.state().lengths, trainer_.steps());
  log.events().settings(config_values(config_text(o_), "config.toml"));
  trainer_.set_album([&](const Snapshot& snapshot) {
    add_events(log.events(), snapshot, *setup_.model);
    album_.add(snapshot);
  });
  std::vector<Metrics> all = log.earlier();
  const auto report = [&](const Metrics& m) {
    log.write(m);
    out_.json(json_line(m));
    out_.line(metrics_text(m, o_.trainer.epochs));
    if (m.split != "train_step") all.push_back(m);
  };
  const bool whole = trainer_.fit(
      report, [&] { save(log, course); }, !o_.run.json, [&](int64_t step) { load_best(step, course); });
  if (whole)
    finish(log, all);
  else
    stopped();
  return whole;
}

bool TrainingRun::train(const Invocation& invocation, bool said) {
  if (world_.size() > 1) trainer_.trace_into(run_.file(kTraceFile));
  try {
    return fit(invocation, said);
  } catch (const std::exception& e) {
    run_.log(concat("error: ", error_text(e, setup_, world_)));
    try {
      album_.finish();
      hook_.finish([] { return true; }, say_);  // not for long: it names what is left
    } catch (const std::exception&) {           // as when the disk is full; the first error counts
    }
    throw;
  }
}

}  // namespace

void print_line(const std::string& text) {
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

Earlier earlier(const RunOptions& o) {
  return o.resume ? Earlier::resume : o.overwrite ? Earlier::replace : Earlier::refuse;
}

std::string on_save(const RunOptions& o) { return o.on_save.empty() ? env::on_save() : o.on_save; }

std::string error_text(const std::exception& e, const RunSetup& setup, const World& world) {
  const bool memory = dynamic_cast<const OutOfMemory*>(&e) && !std::string(e.what()).starts_with("shm:");
  if (!memory) return e.what();
  const TrainOptions& o = setup.options;
  return concat(e.what(), smaller_strategy(model_size(*setup.model), o.step, o.parallel, world.size()));
}

bool lead(RunSetup& setup, const World& world, const Invocation& invocation, bool said) {
  const auto begin = Clock::now();
  Trainer trainer = make_trainer(setup, world.group());
  stop_after_step();
  return TrainingRun(setup, trainer, world, begin).train(invocation, said);
}

bool follow(RunSetup& setup, const World& world) {
  Trainer trainer = make_trainer(setup, world.group());
  stop_after_step();
  const TrainOptions& o = setup.options;
  rank_log(concat("rank ", world.job.rank, " of ", world.size(), " on ", o.execution.device, ", ",
                  device_text(setup.device), ", ", threads_text(o.execution), ", cores ", allowed_cpus_text(),
                  "; process ", ::getpid(), " on ", world.job.host));
  trainer.set_diary(rank_log);
  trainer.trace_into(kTraceFile);  // which rank 0 writes
  trainer.share_state();
  if (!trainer.fit({})) return false;
  trainer.export_weights();
  return true;
}

}  // namespace ringtape::cli
