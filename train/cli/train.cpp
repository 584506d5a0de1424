#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>

#include "autograd/ops.h"
#include "comm/job/place.h"
#include "comm/launch/launch.h"
#include "core/cgroup.h"
#include "core/env.h"
#include "core/log.h"
#include "core/printable.h"
#include "train/cli/introduction.h"
#include "train/cli/training.h"
#include "train/evaluation/features.h"
#include "train/evaluation/snapshot_pictures.h"
#include "train/io/file.h"
#include "train/io/json.h"
#include "train/io/look.h"
#include "train/loop/exported.h"
#include "train/loop/model_state.h"
#include "train/loop/trainer.h"
#include "train/loop/world.h"
#include "train/run/earlier_steps.h"
#include "train/run/environment.h"
#include "train/run/rank_log.h"
#include "train/run/save_hook.h"
#include "train/run/snapshot_files.h"
#include "train/run/stop.h"
#include "train/view/report.h"
#include "train/weights/weights.h"

namespace ringtape::cli {
namespace {

void print_line(const std::string& text) {
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

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

// The summary at the end of a run, from the last metrics of each split.
Json summary(const Task& task, const Trainer& trainer, const RunDir& run, const std::vector<Metrics>& all, int ranks,
             double seconds) {
  const TrainOptions& o = task.options;
  Json out{{"split", "summary"}, {"epoch", o.trainer.epochs}, {"step", trainer.steps()}};
  double images = 0, train_seconds = 0, peak = 0, sent = 0, sending = 0, exposed = 0;
  std::map<std::string, const Metrics*> last;
  for (const Metrics& m : all) {
    last[m.split] = &m;
    peak = std::max(peak, m.peak_bytes.value_or(0));
    if (m.split == "train")
      images += m.images_per_s.value_or(0) * m.seconds.value_or(0), train_seconds += m.seconds.value_or(0);
    sent += m.comm_bytes.value_or(0), sending += m.comm_s.value_or(0), exposed += m.exposed_s.value_or(0);
  }
  if (const auto at = last.find(task.learner->final_split()); at != last.end()) {  // it may be missing in metrics.jsonl
    const Metrics& test = *at->second;
    if (test.loss) out["loss"] = json_number(*test.loss);
    out["top1"] = json_number(test.top1.value_or(std::nan(""))),
    out["top5"] = json_number(test.top5.value_or(std::nan("")));
    task.learner->describe(out, task, all);
  }
  for (const char* split : {"train", "val"})
    if (const auto at = last.find(split); at != last.end()) {
      if (at->second->loss) out[concat(split, "_loss")] = json_number(*at->second->loss);
      if (at->second->top1) out[concat(split, "_top1")] = json_number(*at->second->top1);
    }
  out["images_per_s"] = train_seconds > 0 ? images / train_seconds : 0;
  out["seconds"] = seconds;
  out["peak_bytes"] = int64_t(peak), out["state_bytes"] = trainer.state_bytes();
  out["parameters"] = nn::count_parameters(*task.model);
  out["model"] = o.model.name, out["data"] = o.data.set.name;
  out["seed"] = o.execution.seed, out["deterministic"] = o.execution.deterministic, out["ranks"] = ranks;
  if (sent > 0) out["comm_bytes"] = int64_t(sent);
  if (sending > 0) out["comm_s"] = sending, out["exposed_s"] = exposed;
  out["train_s"] = train_seconds;
  if (o.checkpoint.exported == "best") out["exported_step"] = trainer.state().best->step;
  out["run"] = run.path();
  return out;
}

Earlier earlier(const TrainOptions& o) {
  return o.run.resume ? Earlier::resume : o.run.overwrite ? Earlier::replace : Earlier::refuse;
}

std::string on_save(const RunOptions& o) { return o.on_save.empty() ? env::on_save() : o.on_save; }

// Restores the trainer from the newest complete checkpoint; returns what it says about that. Reads all that it needs
// before it changes anything. Throws IoError if something cannot be read, or if there is no checkpoint although the run
// has saved one.
std::string resume(Trainer& trainer, const Checkpoints& checkpoints, const RunDir& run, int64_t epochs, int ranks,
                   Output& out, SaveHook& hook, SnapshotFiles& album) {
  const Course course = trainer.course();
  const auto found =
      checkpoints.newest(course, [&](const std::string& why) { out.line("checkpoint not used: " + why); });
  if (!found) {
    TrainOptions before;
    if (const std::string path = run.file("config.toml"); is_there(path)) read_config(before, path);
    const std::string sign = sign_of_checkpoints(run, before.checkpoint, course.steps_per_epoch);
    RT_CHECK_AS(IoError, sign.empty(), run.file("checkpoints"), ": has no checkpoint, but ", sign,
                "; bring its checkpoints back (is their disk mounted?), or start again with --overwrite");
    return "resume no checkpoint yet: starting from the beginning";
  }
  MetricsLog::check(run);
  RT_CHECK_AS(UsageError, found->state.epoch <= epochs, "--epochs ", epochs, ": the run has already trained ",
              found->state.epoch, " epochs");
  Checkpoints::load(found->path, trainer.files());
  trainer.restore(found->state);
  if (hook.used()) hook.earlier(checkpoints, found->state.step, course);  // before old ones are removed
  checkpoints.settle(found->state);
  run.note_checkpoint();
  album.go_on_from(found->state.epoch);
  const int before = std::max(int(found->state.counters.size()), 1);
  const std::string others = concat("; it was written by ", before, before == 1 ? " rank" : " ranks", ", and ", ranks,
                                    " do not go on with the same bits");
  return concat("resume ", found->path, ": step ", found->state.step,
                found->state.epoch < epochs ? concat(", in epoch ", found->state.epoch + 1) : ", the last",
                before == ranks ? "" : others);
}

std::string trained_name(const TrainOptions& o) { return (o.self_supervised() ? o.method : o.model).name; }

// The message of an error; if memory was exhausted, other than the memory that ranks share, with what would need less.
std::string error_text(const std::exception& e, const Task& task, const World& world) {
  const bool memory = dynamic_cast<const OutOfMemory*>(&e) && !std::string(e.what()).starts_with("shm:");
  if (!memory) return e.what();
  const TrainOptions& o = task.options;
  return concat(e.what(), smaller_strategy(nn::count_parameters(*task.model), o.step, o.parallel, world.size()));
}

// Trains on a rank other than 0, which writes no files of the run.
bool follow(Task& task, const World& world) {
  Trainer trainer(task, world.group());
  stop_behind_a_step();
  const TrainOptions& o = task.options;
  rank_log(concat("rank ", world.job.rank, " of ", world.size(), " on ", o.execution.device, ", ",
                  device_text(task.device), ", ", threads_text(o.execution), ", cores ", allowed_cpus_text(),
                  "; process ", ::getpid(), " on ", world.job.host));
  trainer.set_diary(rank_log);
  trainer.trace_into(kTraceFile);  // which rank 0 writes
  trainer.share_state();
  return trainer.fit({});
}

// What TensorBoard gets of a snapshot: its pictures, and the distribution of each parameter's values.
void add_events(EventFile& events, const Snapshot& snapshot, nn::Module& model) {
  for (const auto& [name, pixels] : pictures(snapshot))
    events.image(concat(snapshot.split, "/", name), snapshot.step, pixels);
  for (const nn::Named& p : nn::named_parameters(model))
    events.histogram("weights/" + p.name, snapshot.step, to(contiguous(p.tensor->detach()), Device{}).span<float>());
}

// Trains on rank 0. Returns false if a signal stopped it. `said`: the first line has been printed.
bool train(Task& task, const World& world, const Invocation& invocation, bool said) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const TrainOptions& o = task.options;
  Trainer trainer(task, world.group());
  stop_behind_a_step();
  RunDir run(claim_run_path(o.run.name, trained_name(o), o.data.set.name), earlier(o));
  Output out(run, o.run.json);
  SaveHook hook(run, on_save(o.run), o.run.on_save_timeout);
  SnapshotFiles album(run, hook);
  if (world.size() > 1) trainer.trace_into(run.file(kTraceFile));
  const auto say = [&](const std::string& text) { out.line(text); };
  try {
    const Checkpoints checkpoints(run.file("checkpoints"), o.checkpoint.keep,
                                  [&](const std::string& path) { return hook.needs(path); });
    const std::string resumed =
        o.run.resume ? resume(trainer, checkpoints, run, o.trainer.epochs, world.size(), out, hook, album) : "";
    write_file(run.file("config.toml"), config_text(o));
    Json about = environment(invocation.command_line);
    about["ranks"] = world.size(), about["steps_per_epoch"] = trainer.steps_per_epoch();
    write_file(run.file("env.json"), about.text(2) + "\n");
    if (const std::string path = run.file(kTrainedOnFile); !is_there(path))
      write_trained_on(path, trained_on(task.data.train));
    if (said)
      out.log(first_line(o));
    else
      out.line(first_line(o));
    for (const std::string& note : task.data.notes) out.log("warning: " + note);
    for (const std::string& line : introduction(task, trainer, world, run)) out.line(line);
    if (!resumed.empty()) out.line(resumed);
    const Course course = trainer.course();
    trainer.share_state();
    MetricsLog log(run, trainer.state().lengths, trainer.steps());
    log.events().settings(config_values(config_text(o), "config.toml"));
    trainer.set_album([&](const Snapshot& snapshot) {
      add_events(log.events(), snapshot, *task.model);
      album.add(snapshot);
    });
    std::vector<Metrics> all = log.earlier();
    const auto report = [&](const Metrics& m) {
      log.write(m);
      out.json(json_line(m));
      out.line(metrics_text(m, o.trainer.epochs));
      if (m.split != "train_step") all.push_back(m);
    };
    const auto save = [&] {
      album.finish();
      TrainState state = trainer.state();
      state.lengths = log.sync();
      hook.checkpoint(checkpoints.save(state, trainer.files(), course));
      run.note_checkpoint();
    };
    const auto load_best = [&](int64_t step) {
      try {
        (void)check_checkpoint(checkpoints.path_of(step), step, course);
        Checkpoints::load(checkpoints.path_of(step), trainer.files());
      } catch (const Error& e) {
        throw IoError(concat("--export best: ", e.what(), "; train --run ", run.path(),
                             " --resume --export last exports the last weights"));
      }
    };
    if (!trainer.fit(report, save, !o.run.json, load_best)) {
      out.line(concat("stopped by a signal at step ", trainer.steps(),
                      ", with a checkpoint; resume it with --resume --run ", run.path()));
      // The launcher of several ranks ends the last one ten seconds after the first by default (--grace).
      const auto most = Clock::now() + std::chrono::seconds(8);
      album.finish();
      hook.finish([&] { return world.size() > 1 && Clock::now() > most; }, say);  // or until a second signal
      return false;
    }
    const bool backbone = task.learner->exports_backbone();
    const std::string weights = run.file(concat("exported/", exported_name(backbone)));
    trainer.export_weights(weights);
    write_file(run.file("exported/README.md"), exported_readme(task, exported_name(backbone), backbone));
    out.line(
        concat("saved  ", weights, o.step.ema > 0 ? ", the averaged weights" : "",
               o.checkpoint.exported == "best" ? concat(", of step ", trainer.state().best->step, ", the best") : ""));
    album.finish();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    out.json(log.finish(summary(task, trainer, run, all, world.size(), seconds)).text());
    std::exception_ptr no_report;  // the export is delivered all the same
    try {
      write_report(run.file(kReport), {run.path()});
    } catch (const std::exception&) {
      no_report = std::current_exception();
    }
    hook.exported(run.file("exported"));
    hook.finish(stop_requested, say);
    if (no_report) std::rethrow_exception(no_report);
    if (hook.used() && is_there(checkpoints.path_of(trainer.steps()))) checkpoints.settle(trainer.state());
    return true;
  } catch (const std::exception& e) {
    run.log(concat("error: ", error_text(e, task, world)));
    try {
      album.finish();
      hook.finish([] { return true; }, say);  // not for long: it names what is left
    } catch (const std::exception&) {         // as when the disk is full; the first error counts
    }
    throw;
  }
}

// The folder of the existing run that --resume continues; empty: none.
std::string continued(const Invocation& invocation) {
  const std::string* run = invocation.flag("run");
  const std::string path = run && invocation.has("resume") ? run_path(*run, "", "") : "";
  return !path.empty() && is_there(path + "/config.toml") ? path : "";
}

// The options of the command line. A resumed run keeps its settings, and the flags must not contradict them.
TrainOptions training_options(const Invocation& invocation, Use use, std::vector<std::string>& notes) {
  TrainOptions options;
  const std::string path = continued(invocation);
  if (!path.empty()) read_config(options, path + "/config.toml");
  const TrainOptions before = options;
  if (use == Use::pretrain && (path.empty() || invocation.flag("preset"))) begin_with_preset(options, invocation);
  // A launcher decides how many processes go on with a run that had started its own.
  if (comm::place_of_process() && !options.parallel.replicates()) options.parallel.devices = ParallelOptions().devices;
  notes = apply_flags(options, invocation);
  RT_CHECK_AS(UsageError, use == Use::pretrain || !options.self_supervised(), "these are settings of ",
              options.method.name, ", which trains without labels; use ringtape pretrain");
  if (!path.empty()) check_same_settings(options, before, path);
  return options;
}

// With --batch-size-per-rank, another number of ranks would change the batch of a resumed run; its options have both
// sizes.
void check_same_batch(const TrainOptions& o, const std::string& path, int64_t ranks) {
  const int64_t each = o.trainer.batch_size_per_rank;
  RT_CHECK_AS(UsageError, path.empty() || each == 0 || o.trainer.batch_size == each * ranks, "--batch-size-per-rank ",
              each, ": ", path, " was trained with ", o.trainer.batch_size, " images per step on ",
              o.trainer.batch_size / each, " ranks; ", ranks, " ranks would have ", each * ranks,
              "; start as many ranks as before");
}

}  // namespace

int run_training(const Invocation& invocation, Use use) {
  const auto place = comm::place_of_process();
  const bool leads = !place || place->rank == 0;
  stop_at_once(leads);
  std::vector<std::string> notes;
  TrainOptions options = training_options(invocation, use, notes);
  check_run_path(run_path(options.run.name, trained_name(options), options.data.set.name), earlier(options));
  if (leads) SaveHook::check(on_save(options.run));
  if (wants_ranks(options.parallel)) {
    hold_stops();
    TrainOptions common = options;
    common.execution.device = "cpu";  // each rank chooses its own device
    check_same_batch(options, continued(invocation), options.parallel.devices);
    (void)resolve(common, int(options.parallel.devices));  // reports errors once, before the ranks start
    return run_as_processes(int(options.parallel.devices),
                            {invocation.command_line.begin() + 1, invocation.command_line.end()});
  }
  if (leads)
    for (const std::string& note : notes) log_info(note);
  World world = join_world(options.parallel, options.execution);
  // Whether a signal had arrived when the job failed. A later signal comes from a launcher, which ends the remaining
  // ranks.
  const auto told = std::make_shared<std::atomic<bool>>(false);
  if (world.job.failure) world.job.failure->on_raise([told](const std::string&) { *told = stop_requested(); });
  try {
    const std::string path = continued(invocation);
    check_same_batch(options, path, world.size());
    options = resolve(options, world.size());
    bool said = false;
    const auto say = [&] {
      if (world.leads() && !options.run.json) print_line(printable(first_line(options))), said = true;
    };
    const TrainedOn before = path.empty() ? TrainedOn() : read_trained_on(concat(path, "/", kTrainedOnFile));
    Task task(options, world.size(), {.data = before, .leads = world.leads(), .reading = say});
    check_classes(task.data.train, before, "--resume: " + path, "bring them back, or choose another --run");
    try {
      return (world.leads() ? train(task, world, invocation, said) : follow(task, world)) ? 0 : comm::kPreempted;
    } catch (const OutOfMemory& e) {
      throw OutOfMemory(error_text(e, task, world));
    }
  } catch (const std::exception& e) {
    const bool stopped = world.job.failure && world.job.failure->raised() ? told->load() : stop_requested();
    world.fail(printable(e.what()));
    if (!stopped || !world.ended_by_another()) throw;
    log_warn("stopped by a signal, but another rank failed before the checkpoint: ", e.what());
    return comm::kPreempted;
  }
}

Command train_command() {
  Command command;
  command.name = "train";
  command.summary = "Trains a network, with a validation after each epoch and a test at the end.";
  command.usage = "[FLAGS]";
  command.meets = true;
  command.examples = {"train                                # shapes: generated images, no files needed",
                      "train --data mnist --data-dir ~/mnist --epochs 5 --run digits",
                      "train --config runs/digits/config.toml --lr 3e-4 --run digits-2",
                      "train --run digits --resume          # from its newest checkpoint"};
  command.flags = option_flags(Use::train);
  command.flags.push_back({"Run", "config", "FILE",
                           "TOML file of the settings above, one per line: batch-size = 64; flags override it", ""});
  command.run = [](const Invocation& invocation) { return run_training(invocation, Use::train); };
  return command;
}

}  // namespace ringtape::cli
