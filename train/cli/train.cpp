#include <algorithm>
#include <atomic>
#include <exception>
#include <filesystem>
#include <iterator>
#include <limits>

#include "comm/job/place.h"
#include "comm/launch/launch.h"
#include "core/log.h"
#include "core/printable.h"
#include "train/checkpoint/checkpoint.h"
#include "train/cli/introduction.h"
#include "train/cli/restarted.h"
#include "train/cli/standard_streams.h"
#include "train/cli/training.h"
#include "train/cli/training_run.h"
#include "train/data/identity.h"
#include "train/inference/find_weights.h"
#include "train/io/look.h"
#include "train/run/save_hook.h"
#include "train/run/stop.h"

namespace ringtape::cli {
namespace {

// The folder of the existing run that --resume continues; empty: none.
std::string continued(const Invocation& invocation) {
  const std::string* run = invocation.flag("run");
  const std::string path = run && invocation.has("resume") ? run_path(*run) : "";
  if (path.empty() || !is_there(path + "/config.toml")) return "";
  check_no_pipes(path);
  return path;
}

// What --weights names, and of its settings the network's and the size of its images. What is not there is an error of
// the training, later.
std::optional<FoundWeights> initial_weights(const Invocation& invocation) {
  const std::string *const config = invocation.flag("config"), *const key = invocation.flag("weights-key");
  const Given file = config ? read_config(*config) : Given();
  const auto text_of = [&](const char* name) {
    const Given::Setting* const setting = file.find(name);
    return setting ? setting->text : "";
  };
  const std::string* const flag = invocation.flag("weights");
  const std::string target = flag ? *flag : text_of("weights");
  if (target.empty() || !is_weights(target)) return {};
  FoundWeights out = find_weights(target, key ? *key : text_of("weights-key"));
  std::erase_if(out.settings.settings, [](const Given::Setting& setting) {
    const std::string_view name = setting.option->name, kind = setting.option->group.kind;
    return kind != "model" && name != "model" && name != "image-size";
  });
  return out;
}

// A resumed run stays with what it began with, which its checkpoints do not need any more. Throws UsageError if a flag
// names other weights.
void keep_weights(TrainOptions& options, const TrainOptions& before, const std::string& path) {
  const std::string &now = options.weights, &then = before.weights;
  std::error_code ignored;  // one of them is not there
  const bool gone = !then.empty() && !is_there(then),
             same = now == then || std::filesystem::equivalent(now, then, ignored),
             other = !same || options.weights_key != before.weights_key;
  RT_CHECK_AS(UsageError, !other || gone, "--weights ", now, ": ", path, " began with ",
              then.empty() ? "random weights" : then, "; leave it out, or choose another --run");
  options.weights = then, options.weights_key = before.weights_key;
}

// The options of the command line. A resumed run keeps its settings, and the flags must not contradict them.
TrainOptions training_options(const Invocation& invocation, Use use, std::vector<std::string>& notes) {
  TrainOptions options, before;
  std::vector<Given> given;
  const std::string path = continued(invocation);
  if (!path.empty()) {
    given.push_back(read_config(path + "/config.toml"));
    RT_CHECK_AS(FormatError, !given.back().settings.empty(), path, "/config.toml: has no settings; bring it back, or ",
                "start again with --overwrite");
  }
  apply_settings(before, given);
  // A launcher decides how many processes go on with a run that had started its own.
  if (comm::place_of_process() && !before.parallel.entry().replicas && !path.empty()) given[0].leave_out({"devices"});
  if (path.empty() || invocation.flag("preset")) given.push_back(recipe_of(invocation, use));
  const auto weights = initial_weights(invocation);  // whose network it is, unless flags say otherwise
  if (weights && path.empty()) given.push_back(weights->settings);
  std::ranges::move(apply_flags(options, invocation, given), std::back_inserter(notes));
  if (weights) options.weights = weights->weights, options.weights_key = weights->set;
  if (!path.empty()) keep_weights(options, before, path);
  if (std::string& precision = options.execution.precision; !path.empty() && (precision.empty() || precision == "auto"))
    precision = before.execution.precision;
  RT_CHECK_AS(UsageError, use == Use::pretrain || !options.self_supervised(), "these are settings of ",
              options.method.name, ", which trains without labels; use ringtape pretrain");
  if (!path.empty()) check_same_settings(options, before, path);
  return options;
}

// Reports errors once, before the ranks start.
int start_ranks(const TrainOptions& options, const Invocation& invocation) {
  hold_stops();
  const int ranks = int(options.parallel.devices);
  TrainOptions common = options;
  common.execution.device = "cpu";  // each rank chooses its own device
  check_same_batch(options, continued(invocation), ranks);
  (void)resolve(common, ranks);
  const bool elastic = options.parallel.elastic.on;
  RT_CHECK_AS(UsageError, !elastic || !options.run.name.empty(),
              "--elastic: needs --run NAME, to go on with the run if all ranks have ended");
  return run_as_processes(ranks, {invocation.command_line.begin() + 1, invocation.command_line.end()}, elastic);
}

// Returns false if a signal stopped the training.
bool train_on_rank(TrainOptions options, const World& world, const Invocation& invocation) {
  const std::string path = continued(invocation);
  check_same_batch(options, path, world.size());
  options = resolve(std::move(options), world.size());
  bool said = false;
  const auto say = [&, options] {
    if (world.leads() && !options.run.json) print_line(printable(first_line(options))), said = true;
  };
  const auto made = set_up(std::move(options), path, world.leads(), say);
  RunSetup& setup = *made;
  try {
    Trainer trainer = make_trainer(setup, world.group());
    stop_after_step();
    const auto role = world.leads() ? leader(setup, invocation, said, earlier(setup.options.run)) : follower(setup);
    role->begin(trainer, world);
    if (role->train(trainer, world)) return true;
    // Launchers end the other ranks as soon as one has ended with an error code; rank 0 is here when its files are.
    world.group().barrier().wait();
    return false;
  } catch (const OutOfMemory& e) {
    throw OutOfMemory(error_text(e, setup, world));
  }
}

}  // namespace

std::unique_ptr<RunSetup> set_up(TrainOptions options, const std::string& path, bool leads,
                                 const std::function<void()>& reading) {
  constexpr int64_t kAllSteps = std::numeric_limits<int64_t>::max();
  const TrainedOn before = path.empty() ? TrainedOn() : read_trained_on(concat(path, "/", kTrainedOnFile));
  const bool trained = !path.empty() && !Checkpoints(path + "/checkpoints", 1).steps_until(kAllSteps).empty();
  auto out = std::make_unique<RunSetup>(
      std::move(options), Beginning{.data = before, .leads = leads, .reading = reading, .weights = !trained});
  check_classes(out->data.train, before, "--resume: " + path, "bring them back, or choose another --run");
  if (path.empty()) return out;
  check_files(out->data, concat(path, "/", kDataFilesFile));
  check_contents(out->data, concat(path, "/", kDataContentsFile));
  return out;
}

// The options have both sizes.
void check_same_batch(const TrainOptions& o, const std::string& path, int64_t ranks) {
  const int64_t each = o.trainer.batch_size_per_rank;
  RT_CHECK_AS(UsageError, path.empty() || each == 0 || o.trainer.batch_size == each * ranks, "--batch-size-per-rank ",
              each, ": ", path, " was trained with ", o.trainer.batch_size, " images per step on ",
              o.trainer.batch_size / each, " ranks; ", ranks, " ranks would have ", each * ranks,
              "; start as many ranks as before");
}

int run_training(const Invocation& given, Use use) {
  const auto place = comm::place_of_process();
  const bool leads = !place || place->rank == 0;
  stop_at_once(leads);
  std::vector<std::string> notes;
  const Invocation invocation = of_this_attempt(given, notes);
  TrainOptions options = training_options(invocation, use, notes);
  const bool elastic = options.parallel.elastic.on;
  RT_CHECK_AS(UsageError, !elastic || place || wants_ranks(options.parallel),
              "--elastic: ranks that may come back need a launcher: --devices N, or ringtape launch --elastic -n N");
  if (elastic && place && leads) {
    SaveHook::check(on_save(options.run));
    for (const std::string& note : notes) log_info(note);
  }
  if (elastic && place) return train_elastically(std::move(options), *place, invocation, continued(invocation));
  if (!options.run.name.empty()) check_run_path(run_path(options.run.name), earlier(options.run));
  if (leads) SaveHook::check(on_save(options.run));
  if (leads) note_what_is_replaced(invocation);
  if (wants_ranks(options.parallel)) return start_ranks(options, invocation);
  if (leads)
    for (const std::string& note : notes) log_info(note);
  World world = join_world(options.parallel, options.execution);
  // Whether a signal had arrived when the job failed. A later signal comes from a launcher, which ends the remaining
  // ranks.
  const auto told = std::make_shared<std::atomic<bool>>(false);
  if (world.job.failure) world.job.failure->on_raise([told](const std::string&) { *told = stop_requested(); });
  try {
    return train_on_rank(std::move(options), world, invocation) ? 0 : comm::kPreempted;
  } catch (const std::exception& e) {
    const bool stopped = world.job.failure && world.job.failure->raised() ? told->load() : stop_requested();
    world.fail(printable(e.what()));
    if (!stopped || !world.ended_by_another()) throw;
    log_warn("stopped by a signal while another rank ended: ", kWithoutCheckpoint, ": ", e.what());
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
                      "train --preset fine_tune --data-dir DIR --weights FILE",
                      "train --config runs/digits/config.toml --lr 3e-4 --run digits-2",
                      "train --run digits --resume          # from its newest checkpoint"};
  command.flags = option_flags(Use::train);
  std::ranges::move(recipe_flags(Use::train), std::back_inserter(command.flags));
  command.usual = {"model", "data",      "data-dir", "preset", "weights", "epochs", "batch-size",
                   "lr",    "optimizer", "devices",  "seed",   "run",     "resume"};
  command.see =
      "`ringtape list` explains these names, `ringtape find-lr` suggests a learning rate, `ringtape compare --vary` "
      "trains a sweep over several values, `ringtape runs` shows what there is.";
  command.run = [](const Invocation& invocation) { return run_training(invocation, Use::train); };
  return command;
}

}  // namespace ringtape::cli
