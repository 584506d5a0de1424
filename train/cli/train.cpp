#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "comm/job/place.h"
#include "comm/launch/launch.h"
#include "core/cgroup.h"
#include "core/env.h"
#include "core/log.h"
#include "core/part.h"
#include "core/printable.h"
#include "kernels/kernel.h"
#include "train/cli/training.h"
#include "train/evaluation/features.h"
#include "train/io/file.h"
#include "train/io/json.h"
#include "train/io/look.h"
#include "train/loop/trainer.h"
#include "train/loop/world.h"
#include "train/run/earlier_steps.h"
#include "train/run/environment.h"
#include "train/run/rank_log.h"
#include "train/run/save_hook.h"
#include "train/run/stop.h"
#include "train/run/version.h"
#include "train/weights/exported.h"
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

std::string image_text(const Dataset& data) {
  const Shape& s = data.images.shape();
  return concat(s[1], "x", s[2], "x", s[3]);
}

std::string device_text(Device device) {
  const std::string gpu = runtime(device).describe(device.index);
  return gpu.empty() ? std::string(name_of(cpu_isa())) : gpu;
}

std::string threads_text(const ExecutionOptions& o) {
  return concat(o.threads, o.threads == 1 ? " thread" : " threads");
}

// The first line of the output, printed before the data are read, which may take time.
std::string first_line(const TrainOptions& o) {
  const ExecutionOptions& e = o.execution;
  return concat(
      "ringtape ", kVersion, " on ", e.device, ", ", device_text(parse_device(e.device)), ", ", threads_text(e), "; ",
      o.data.set.name,
      find_dataset(o.data.set.name).generated ? std::string(", generated") : " from " + data_root({.dir = o.data.dir}));
}

void introduce(Output& out, const Task& task, const Trainer& trainer, const World& world, const RunDir& run) {
  const TrainOptions& o = task.options;
  const Splits& d = task.data;
  for (const std::string& note : d.notes) out.log("warning: " + note);
  out.line(concat("data   ", d.train.name, " (", d.train.source,
                  "): ", with_commas(int64_t(trainer.train_samples())), " training, ",
                  with_commas(int64_t(trainer.val_samples())), " validation, ", with_commas(d.test.size()),
                  " test images of ", image_text(d.train), ", ", d.train.classes, " classes"));
  const ScheduleOptions& s = o.schedule;
  const std::string scaled =
      trainer.lr() == s.lr ? "" : fmt::format(" ({:g}, {} scaling with the ranks)", s.lr, s.lr_scale);
  out.line(concat("model  ", task.learner->title(), ", ", with_commas(nn::count_parameters(*task.model)),
                  " parameters; ", o.step.optimizer.name, ", learning rate ", fmt::format("{:g}", trainer.lr()), scaled,
                  ", batch ", o.trainer.batch_size, ", ", with_commas(trainer.steps_per_epoch()), " steps per epoch"));
  if (!o.weights.empty()) {
    const int64_t others = task.last_layer.outputs;
    out.line(concat("begin  ", o.weights, task.last_layer.loaded ? "" : ", with a new last layer",
                    others == 0 ? ""
                                : concat(" (its own has ", others == d.train.classes ? "other" : with_commas(others),
                                         " classes)")));
  }
  if (world.size() > 1) {
    const Part most = part_of(o.trainer.batch_size, world.size(), 0),
               least = part_of(o.trainer.batch_size, world.size(), world.size() - 1);
    out.line(concat("ranks  ", world.size(), " over ", world.group().transport().name(), ", ",
                    o.parallel.strategy == "ddp2" ? "ddp2" : "ddp", "; each ", least.size(),
                    most.size() > least.size() ? concat(" or ", most.size()) : "", " images per batch",
                    o.parallel.sync_bn ? "; batch normalisation over all" : ""));
  }
  if (task.replicas) {
    std::string names;
    for (const Device device : task.replicas->devices()) names += concat(names.empty() ? "" : ", ", device);
    out.line(concat("dp     replicas on ", names, o.parallel.dp_persistent ? ", kept between steps" : "",
                    o.parallel.sync_bn ? "; batch normalisation over all" : "", "; running statistics of replica 0"));
  }
  out.line("run    " + run.path());
}

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
  if (const auto at = last.find(task.learner->final_split());
      at != last.end()) {  // it may be missing in metrics.jsonl
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
  out["peak_bytes"] = int64_t(peak);
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
std::string resume(Trainer& trainer, const Checkpoints& checkpoints, const RunDir& run, int ranks, Output& out,
                   SaveHook& hook) {
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
  const int64_t epochs = course.options.trainer.epochs;
  RT_CHECK_AS(UsageError, found->state.epoch <= epochs, "--epochs ", epochs, ": the run has already trained ",
              found->state.epoch, " epochs");
  Checkpoints::load(found->path, trainer.files());
  trainer.restore(found->state);
  if (hook.used()) hook.earlier(checkpoints, found->state.step, course);  // before old ones are removed
  checkpoints.settle(found->state);
  run.note_checkpoint();
  const int before = std::max(int(found->state.counters.size()), 1);
  const std::string others = concat("; it was written by ", before, before == 1 ? " rank" : " ranks", ", and ", ranks,
                                    " do not go on with the same bits");
  return concat("resume ", found->path, ": step ", found->state.step,
                found->state.epoch < epochs ? concat(", in epoch ", found->state.epoch + 1) : ", the last",
                before == ranks ? "" : others);
}

std::string trained_name(const TrainOptions& o) { return (o.self_supervised() ? o.method : o.model).name; }

// Trains on a rank other than 0, which writes no files of the run.
bool follow(Task& task, const World& world) {
  Trainer trainer(task, world.group());
  stop_behind_a_step();
  const TrainOptions& o = task.options;
  rank_log(concat("rank ", world.job.rank, " of ", world.size(), " on ", o.execution.device, ", ",
                  device_text(task.device), ", ", threads_text(o.execution), ", cores ", allowed_cpus_text(),
                  "; process ", ::getpid(), " on ", world.job.host));
  trainer.set_diary(rank_log);
  trainer.share_state();
  return trainer.fit({});
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
  const auto say = [&](const std::string& text) { out.line(text); };
  try {
    const Checkpoints checkpoints(run.file("checkpoints"), o.checkpoint.keep,
                                  [&](const std::string& path) { return hook.needs(path); });
    const std::string resumed = o.run.resume ? resume(trainer, checkpoints, run, world.size(), out, hook) : "";
    write_file(run.file("config.toml"), config_text(o));
    write_file(run.file("env.json"), environment(invocation.command_line).text(2) + "\n");
    if (const std::string path = run.file(kTrainedOnFile); !is_there(path))
      write_trained_on(path, trained_on(task.data.train));
    if (said) out.log(first_line(o));
    else out.line(first_line(o));
    introduce(out, task, trainer, world, run);
    if (!resumed.empty()) out.line(resumed);
    const Course course = trainer.course();
    trainer.share_state();
    MetricsLog log(run, trainer.state().lengths, trainer.steps());
    std::vector<Metrics> all = log.earlier();
    const auto report = [&](const Metrics& m) {
      log.write(m);
      out.json(json_line(m));
      out.line(metrics_text(m, o.trainer.epochs));
      if (m.split != "train_step") all.push_back(m);
    };
    const auto save = [&] {
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
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    out.json(log.finish(summary(task, trainer, run, all, world.size(), seconds)).text());
    hook.exported(run.file("exported"));
    hook.finish(stop_requested, say);
    if (hook.used() && is_there(checkpoints.path_of(trainer.steps()))) checkpoints.settle(trainer.state());
    return true;
  } catch (const std::exception& e) {
    run.log(concat("error: ", e.what()));
    try {
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
  if (comm::place_of_process() && !options.parallel.replicates())
    options.parallel.devices = ParallelOptions().devices;
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
    return (world.leads() ? train(task, world, invocation, said) : follow(task, world)) ? 0 : comm::kPreempted;
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
                           "TOML file of the settings above, one per line: batch-size = 64; flags override it",
                           ""});
  command.run = [](const Invocation& invocation) { return run_training(invocation, Use::train); };
  return command;
}

}  // namespace ringtape::cli
