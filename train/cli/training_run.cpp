#include "train/cli/training_run.h"

#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <set>
#include <sstream>
#include <tuple>

#include "autograd/ops.h"
#include "core/cgroup.h"
#include "core/env.h"
#include "core/log.h"
#include "train/cli/common.h"
#include "train/cli/introduction.h"
#include "train/cli/run_output.h"
#include "train/data/identity.h"
#include "train/evaluation/snapshot_pictures.h"
#include "train/io/file.h"
#include "train/io/json.h"
#include "train/io/look.h"
#include "train/loop/exported.h"
#include "train/loop/model_state.h"
#include "train/run/earlier_steps.h"
#include "train/run/environment.h"
#include "train/run/metrics_log.h"
#include "train/run/run_dir.h"
#include "train/run/save_hook.h"
#include "train/run/snapshot_files.h"
#include "train/run/stop.h"
#include "train/run/time_text.h"
#include "train/view/report.h"

namespace ringtape::cli {
namespace {

using Clock = std::chrono::steady_clock;

// What TensorBoard gets of a snapshot: its pictures, and the distribution of each parameter's values.
void add_events(EventFile& events, const Snapshot& snapshot, nn::Module& model) {
  for (const auto& [name, pixels] : pictures(snapshot))
    events.image(concat(snapshot.split, "/", name), snapshot.step, pixels);
  for (const nn::Named& p : nn::all_parameters(model))
    events.histogram("weights/" + p.name, snapshot.step, to(contiguous(p.tensor->detach()), Device{}).span<float>());
}

// The training on rank 0 and the files of its run.
class Leader : public Role {
 public:
  Leader(const RunSetup& setup, const Invocation& invocation, bool said, Earlier earlier, const Backlog* backlog)
      : setup_(setup), invocation_(invocation), said_(said), earlier_(earlier), backlog_(backlog), o_(setup.options),
        run_(claim_run_path(o_.run.name, setup.name(), o_.data.set.name), earlier), out_(run_, o_.run.json),
        hook_(run_, on_save(o_.run), o_.run.on_save_timeout), snapshots_(run_, hook_),
        checkpoints_(
            run_.file("checkpoints"), o_.checkpoint.keep, [this](const std::string& path) { return hook_.needs(path); },
            [this] {
              if (membership_) membership_->check();
            }) {}

  void begin(Trainer& trainer, const World& world) override;
  bool train(Trainer& trainer, const World& world) override;
  void leave() override { wait_for_files(); }

 private:
  void logging_errors(const World& world, const std::function<void()>& f);
  void start(Trainer& trainer, const World& world);
  std::vector<std::string> resume(Trainer& trainer, const World& world);
  void introduce(const Trainer& trainer, const World& world);
  void open_log(const Trainer& trainer);
  void add_missing(const Metrics& m, const Trainer& trainer);
  void take_place(Trainer& trainer);
  void tell_of_ranks(const Trainer& trainer, const World& world);
  void report(const Metrics& m);
  void note_written(const Metrics& m);
  bool is_written(const Metrics& m) const {
    return m.step < forgotten_ || written_.contains({m.step, m.epoch, m.split});
  }
  void keep_contents();
  void save(Trainer& trainer);
  void load_best(const Trainer& trainer, int64_t step) const;
  void stopped(const Trainer& trainer, const World& world);
  void finish(const Trainer& trainer, const World& world);
  bool fit(Trainer& trainer, const World& world);
  // Throws if other ranks have gone on without this process: then it must not write to the run.
  void check(const World& world) const {
    if (world.membership) world.membership->check();
  }
  void wait_for_files();
  void save_what_is_due(Trainer& trainer);

  const RunSetup& setup_;
  const Invocation& invocation_;
  const bool said_;
  const Earlier earlier_;
  const Backlog* const backlog_;
  const Clock::time_point begin_ = Clock::now();
  const TrainOptions& o_;
  RunDir run_;
  Output out_;
  SaveHook hook_;
  SnapshotFiles snapshots_;
  const Checkpoints checkpoints_;
  comm::Membership* membership_ = nullptr;  // null: ranks do not come and go
  std::optional<MetricsLog> log_;
  static constexpr int kNoted = 1000;  // lines: many more than ranks can differ by
  std::vector<Metrics> all_;           // but for steps; of a leader that takes over, once all are written
  std::set<std::tuple<int64_t, int64_t, std::string>> written_;  // step, epoch and split of the last lines
  int64_t contents_kept_ = 0;                                    // how many checksums of images are in their file
  int64_t forgotten_ = 0;                                        // lines of steps before this one are all written
  const std::function<void(const std::string&)> say_ = [this](const std::string& text) { out_.line(text); };
};

// Restores the trainer from the newest complete checkpoint; returns lines that say so. Reads all that it needs
// before it changes anything. Throws IoError if something cannot be read, or if there is no checkpoint although the run
// has saved one.
std::vector<std::string> Leader::resume(Trainer& trainer, const World& world) {
  const Course course = trainer.course();
  const auto found =
      checkpoints_.newest(course, [&](const std::string& why) { out_.line("checkpoint not used: " + why); });
  TrainOptions before;
  before.trainer = o_.trainer, before.limits = o_.limits;
  if (const std::string path = run_.file("config.toml"); is_there(path)) apply_settings(before, {read_config(path)});
  if (!found) {
    const std::string sign = sign_of_checkpoints(run_, before.checkpoint, course.steps_per_epoch);
    RT_CHECK_AS(IoError, sign.empty(), run_.file("checkpoints"), ": has no checkpoint, but ", sign,
                "; bring its checkpoints back (is their disk mounted?), or start again with --overwrite, as also after "
                "an --overwrite that was interrupted");
    return {"resume no checkpoint yet: starting from the beginning"};
  }
  MetricsLog::check(run_);
  check_before_end(found->state, o_.trainer.epochs, o_.limits);
  Checkpoints::load(found->path, trainer.files());
  trainer.restore(found->state);
  if (hook_.used()) hook_.earlier(checkpoints_, found->state.step, course);  // before old ones are removed
  checkpoints_.settle(found->state);
  run_.note_checkpoint();
  snapshots_.go_on_from(found->state.epoch);
  const int writers = std::max(int(found->state.counters.size()), 1), ranks = world.size();
  const std::string others = concat("; it was written by ", writers, writers == 1 ? " rank" : " ranks", ", and ", ranks,
                                    " do not go on with the same bits");
  std::vector<std::string> out = {
      concat("resume ", found->path, ": step ", found->state.step,
             found->state.epoch < o_.trainer.epochs ? concat(", in epoch ", found->state.epoch + 1) : ", the last",
             writers == ranks || o_.parallel.shares > 0 ? "" : others)};
  const Schedule then(o_.schedule, trainer.lr(), trainer.steps_per_epoch(), before.trainer.epochs,
                      before.limits.max_steps);
  if (const std::string note = moved_end(then, trainer.schedule(), found->state.step); !note.empty())
    out.push_back("note   " + note);
  return out;
}

// Writes what the run is, and says it.
void Leader::introduce(const Trainer& trainer, const World& world) {
  write_file(run_.file("config.toml"), config_text(o_));
  Json about = environment(invocation_.command_line);
  about["ranks"] = world.size(), about["steps_per_epoch"] = trainer.steps_per_epoch();
  write_file(run_.file("env.json"), about.text(2) + "\n");
  if (const std::string path = run_.file(kTrainedOnFile); !is_there(path))
    write_trained_on(path, trained_on(setup_.data.train));
  if (const std::string path = run_.file(kDataFilesFile); !is_there(path)) write_files(setup_.data, path);
  keep_contents();
  said_ ? out_.log(first_line(o_)) : out_.line(first_line(o_));
  for (const std::string& note : setup_.data.notes) out_.log("warning: " + note);
  for (const std::string& line : introduction(setup_, trainer, world, run_)) out_.line(line);
}

void Leader::save(Trainer& trainer) {
  snapshots_.finish();
  TrainState state = trainer.state();
  state.lengths = log_->sync();
  keep_contents();
  hook_.checkpoint(checkpoints_.save(state, trainer.files(), trainer.course()));
  if (membership_) membership_->check();  // it may have been stopped meanwhile
  run_.note_checkpoint();
}

void Leader::load_best(const Trainer& trainer, int64_t step) const {
  try {
    (void)check_checkpoint(checkpoints_.path_of(step), step, trainer.course());
    Checkpoints::load(checkpoints_.path_of(step), trainer.files());
  } catch (const Error& e) {
    throw IoError(concat("--export best: ", e.what(), "; train --run ", run_.path(),
                         " --resume --export last exports the last weights"));
  }
}

void Leader::stopped(const Trainer& trainer, const World& world) {
  const bool alone = world.membership && world.membership->is_last();
  const char* const why = alone ? "because fewer than --min-ranks are left," : "by a signal";
  out_.line(concat("stopped ", why, " at step ", trainer.steps(), ", with a checkpoint; resume it with --resume --run ",
                   run_.path()));
  if (world.size() > 1) return wait_for_files();
  snapshots_.finish();
  if (hook_.waits()) out_.line("waiting for --on-save; the same signal, a second or more after the first, ends that");
  hook_.finish([] { return false; }, say_);  // or until a second signal
}

// The launcher of several ranks ends the last one ten seconds after the first by default (--grace).
void Leader::wait_for_files() {
  const auto most = Clock::now() + std::chrono::seconds(8);
  snapshots_.finish();
  hook_.finish([&] { return Clock::now() > most; }, say_);
}

// Writes the checksums of the images if more are known.
void Leader::keep_contents() {
  const int64_t known = known_contents(setup_.data);
  if (known > contents_kept_) write_contents(setup_.data, run_.file(kDataContentsFile));
  contents_kept_ = known;
}

// Exports the weights and writes the summary and the report.
void Leader::finish(const Trainer& trainer, const World& world) {
  check(world);
  keep_contents();
  if (const std::string end = trainer.end_text(); !end.empty()) out_.line("ended  " + end);
  const bool backbone = trainer.learner().facts.exports_backbone;
  const std::string weights = run_.file(concat("exported/", exported_name(backbone)));
  trainer.export_weights(weights);
  write_file(run_.file("exported/README.md"), exported_readme(setup_, exported_name(backbone), backbone));
  out_.line(
      concat("saved  ", weights, o_.step.ema > 0 ? ", the averaged weights" : "",
             o_.checkpoint.exported == "best" ? concat(", of step ", trainer.state().best->step, ", the best") : ""));
  snapshots_.finish();
  check(world);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
  if (earlier_ == Earlier::take_over) all_ = log_->earlier();
  out_.json(log_->finish(run_summary(setup_, trainer, run_, all_, world.size(), seconds)).text());
  std::exception_ptr no_report;  // the export is delivered all the same
  try {
    write_report(run_.file(kReport), {run_.path()});
  } catch (const std::exception&) {
    no_report = std::current_exception();
  }
  hook_.exported(run_.file("exported"));
  hook_.finish(stop_requested, say_);
  if (no_report) std::rethrow_exception(no_report);
  const bool has_more = hook_.used() || !trainer.ended_by().empty();  // the last validation may be the best
  if (has_more && is_there(checkpoints_.path_of(trainer.steps()))) checkpoints_.settle(trainer.state());
  if (world.membership) world.membership->finish();
}

void Leader::open_log(const Trainer& trainer) {
  const bool takes_over = earlier_ == Earlier::take_over;
  log_.emplace(run_, takes_over ? MetricsLog::cut_behind(run_, trainer.steps()) : trainer.state().lengths,
               trainer.steps());
  log_->events().settings(config_values(config_text(o_), "config.toml"));
  if (!takes_over) all_ = log_->earlier();
  for (const Metrics& m : takes_over ? log_->newest(kNoted) : all_) note_written(m);
  if (takes_over && written_.size() >= kNoted / 2) forgotten_ = std::get<0>(*written_.begin()) + 1;
}

void Leader::add_missing(const Metrics& m, const Trainer& trainer) {
  if (m.step <= trainer.steps() && !is_written(m)) report(m);
}

// Does what another rank may have left undone when it was lost.
void Leader::take_place(Trainer& trainer) {
  if (backlog_)
    for (const Metrics& m : *backlog_) add_missing(m, trainer);
  snapshots_.go_on_from(trainer.epochs_begun());
  if (hook_.used()) hook_.earlier(checkpoints_, trainer.steps(), trainer.course());
}

// A rank may have been lost while all were about to save.
void Leader::save_what_is_due(Trainer& trainer) {
  const int64_t due = trainer.saved_step();
  if (due > 0 && due == trainer.steps() && !is_there(checkpoints_.path_of(due))) save(trainer);
}

void Leader::tell_of_ranks(const Trainer& trainer, const World& world) {
  const comm::Assignment& assignment = world.membership->assignment();
  if (assignment.number == 1) return;
  Json note{{"split", kMembership},    {"epoch", trainer.state().epoch + 1},
            {"step", trainer.steps()}, {"generation", assignment.number},
            {"ranks", world.size()},   {"cause", assignment.cause}};
  std::string stopped;
  if (world.stopped) {
    const double seconds = comm::Seconds(comm::Clock::now() - *world.stopped).count();
    note["stopped_s"] = seconds, stopped = fmt::format("; stopped {:.2f} s", seconds);
  }
  out_.line(concat("ranks  ", assignment.summary(), "; after step ", trainer.steps(), stopped));
  log_->note(note);
}

void Leader::start(Trainer& trainer, const World& world) {
  const int source = world.membership ? world.membership->assignment().source : -1;
  const bool goes_on = earlier_ == Earlier::resume || earlier_ == Earlier::take_over;
  const bool resumes = source < 0 && (o_.run.resume || goes_on);
  membership_ = world.membership;
  const std::vector<std::string> resumed = resumes ? resume(trainer, world) : std::vector<std::string>();
  const bool first = !log_, takes_over = first && earlier_ == Earlier::take_over;
  if (first && !takes_over) introduce(trainer, world);
  for (const std::string& line : resumed) out_.line(line);
  std::istringstream lines(trainer.share_state(std::max(source, 0), newest_lines(backlog_)));
  check(world);
  if (first) open_log(trainer);
  if (takes_over) take_place(trainer);
  for (std::string line; std::getline(lines, line);)
    if (const auto m = parse_metrics(line, "the metrics of another rank")) add_missing(*m, trainer);
  if (world.membership) {
    tell_of_ranks(trainer, world);
    save_what_is_due(trainer);
  }
  trainer.on_snapshot([&](const Snapshot& snapshot) {
    add_events(log_->events(), snapshot, *setup_.model);
    snapshots_.add(snapshot);
  });
}

void Leader::note_written(const Metrics& m) {
  written_.emplace(m.step, m.epoch, m.split);
  if (written_.size() <= kNoted) return;
  forgotten_ = std::get<0>(*written_.begin()) + 1;
  while (!written_.empty() && std::get<0>(*written_.begin()) < forgotten_) written_.erase(written_.begin());
}

void Leader::report(const Metrics& m) {
  log_->write(m);
  note_written(m);
  out_.json(json_line(m));
  out_.line(metrics_text(m, o_.trainer.epochs));
  if (m.split != "train_step") all_.push_back(m);
}

bool Leader::fit(Trainer& trainer, const World& world) {
  const auto report_new = [&](const Metrics& m) {
    check(world);
    if (!world.membership || !is_written(m)) report(m);
  };
  const auto save_now = [&] {
    check(world);
    save(trainer);
  };
  trainer.on_estimate([&](double left) {
    out_.line(concat("time   about ", duration_text(left), " left, after ", with_commas(trainer.steps()), " of ",
                     with_commas(trainer.schedule().steps()), " steps"));
  });
  const bool whole = trainer.fit(report_new, save_now, !o_.run.json, [&](int64_t step) { load_best(trainer, step); });
  if (whole) finish(trainer, world);
  else stopped(trainer, world);
  return whole;
}

void Leader::begin(Trainer& trainer, const World& world) {
  logging_errors(world, [&] { start(trainer, world); });
}

bool Leader::train(Trainer& trainer, const World& world) {
  if (world.size() > 1) trainer.trace_into(run_.file(kTraceFile));
  bool whole = false;
  logging_errors(world, [&] { whole = fit(trainer, world); });
  return whole;
}

void Leader::logging_errors(const World& world, const std::function<void()>& f) {
  try {
    f();
  } catch (const RanksChange&) {
    throw;
  } catch (const std::exception& e) {
    // The job goes on, perhaps without this process.
    if (world.membership && world.membership->failed() && dynamic_cast<const CommError*>(&e)) throw;
    run_.log(concat("error: ", error_text(e, setup_, world)));
    try {
      snapshots_.finish();
      hook_.finish([] { return true; }, say_);  // not for long: it names what is left
    } catch (const std::exception&) {           // as when the disk is full; the first error counts
    }
    throw;
  }
}

}  // namespace

Earlier earlier(const RunOptions& o) {
  return o.resume ? Earlier::resume : o.overwrite ? Earlier::replace : Earlier::refuse;
}

std::string on_save(const RunOptions& o) { return o.on_save.empty() ? env::on_save() : o.on_save; }

std::string error_text(const std::exception& e, const RunSetup& setup, const World& world) {
  const bool memory = dynamic_cast<const OutOfMemory*>(&e) && !std::string(e.what()).starts_with("shm:");
  if (!memory) return e.what();
  const TrainOptions& o = setup.options;
  return concat(e.what(), o.self_supervised() ? "" : ", or the same one in parts: --accumulate N",
                smaller_strategy(model_size(*setup.model), o.step, o.parallel, world.size()));
}

std::unique_ptr<Role> leader(const RunSetup& setup, const Invocation& invocation, bool said, Earlier earlier,
                             const Backlog* backlog) {
  return std::make_unique<Leader>(setup, invocation, said, earlier, backlog);
}

}  // namespace ringtape::cli
