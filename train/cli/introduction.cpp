#include "train/cli/introduction.h"

#include <fmt/core.h>

#include "core/part.h"
#include "core/printable.h"
#include "core/runtime.h"
#include "kernels/kernel.h"
#include "train/loop/execution.h"
#include "train/loop/model_state.h"
#include "train/run/metrics_log.h"
#include "train/run/version.h"

namespace ringtape::cli {

static std::string image_text(const Dataset& data) {
  const Shape s = data.image();
  return concat(s[0], "x", s[1], "x", s[2]);
}

std::string device_text(Device device) {
  const std::string gpu = runtime(device).describe(device.index);
  return gpu.empty() ? std::string(name_of(cpu_isa())) : gpu;
}

std::string threads_text(const ExecutionOptions& o) {
  return concat(o.threads, o.threads == 1 ? " thread" : " threads");
}

std::string first_line(const TrainOptions& o) {
  const ExecutionOptions& e = o.execution;
  const std::string precision = precision_text(e);
  return concat(
      "ringtape ", kVersion, " on ", e.device, ", ", device_text(parse_device(e.device)), ", ",
      precision.empty() ? "" : precision + ", ", threads_text(e), "; ", o.data.set.name,
      find_dataset(o.data.set.name).generated ? std::string(", generated") : " from " + data_root({.dir = o.data.dir}));
}

// The first classes of a user's own images, which may be others than meant.
static std::string names_text(const Splits& data) {
  constexpr size_t kShown = 6;
  const std::vector<std::string>& names = data.train.class_names;
  if (!data.train.encoded || names.empty()) return "";
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) out += concat(i > 0 ? ", " : "", printable(names[i]));
  return concat(" (", out, names.size() > kShown ? ", ...)" : ")");
}

static std::string data_line(const Splits& d, const Learner& learner) {
  const auto count = [](const std::vector<int64_t>& samples) { return with_commas(int64_t(samples.size())); };
  return concat(
      "data   ", d.train.name, " (", d.train.source, "): ", count(learner.split.train), " training, ",
      count(learner.split.val), " validation, ", with_commas(d.test.size()), " test images of ", image_text(d.train),
      d.train.classes > 0 ? concat(", ", d.train.classes, d.train.classes == 1 ? " class" : " classes", names_text(d))
                          : ", without labels",
      d.train.is_encoded() ? ", decoded for each batch" : "");
}

static std::string model_line(const RunSetup& task, const Trainer& trainer) {
  const ScheduleOptions& s = task.options.schedule;
  const std::string scaled =
      trainer.lr() == s.lr ? "" : fmt::format(" ({:g}, {} scaling with the ranks)", s.lr, s.lr_scale);
  const int64_t all = nn::count_parameters(*task.model), frozen = model_size(*task.model).frozen;
  const std::string trained = frozen == 0 ? "" : concat(" (", with_commas(all - frozen), " of them trained)");
  return concat("model  ", trainer.learner().facts.title, ", ", with_commas(all), " parameters", trained, "; ",
                task.options.step.optimizer.name, ", learning rate ", fmt::format("{:g}", trainer.lr()), scaled,
                ", batch ", task.options.trainer.batch_size, ", ", with_commas(trainer.steps_per_epoch()),
                trainer.steps_per_epoch() == 1 ? " step per epoch, " : " steps per epoch, ",
                with_commas(task.options.trainer.epochs), task.options.trainer.epochs == 1 ? " epoch" : " epochs");
}

static std::string weights_line(const RunSetup& task) {
  const Dataset& d = task.data.train;
  const auto& [last_layer, others, prefix, own, left_out, resampled] = *task.initial;
  return concat(
      "begin  ", task.options.weights, prefix.empty() ? "" : concat(", below '", printable(prefix), "'"),
      last_layer ? "" : ", with a new last layer",
      others == 0 ? "" : concat(" (its own has ", others == d.classes ? "other" : with_commas(others), " classes)"),
      left_out.empty() ? "" : concat("; not used: ", printable(left_out)), resampled.empty() ? "" : "; " + resampled,
      own ? "" : concat("; says nothing of its images' normalisation, these are by ", normalisation_text(d)));
}

static std::string ranks_line(const TrainOptions& o, const World& world) {
  const int64_t batch = o.trainer.batch_size, most = part_of(batch, world.size(), 0).size(),
                least = part_of(batch, world.size(), world.size() - 1).size();
  return concat("ranks  ", world.size(), " over ", world.group().transport().name(), ", ",
                o.parallel.strategy.name == "auto" ? "ddp" : o.parallel.strategy.name, "; each ", least,
                most > least ? concat(" or ", most) : "", " images per batch",
                o.parallel.sync_bn ? "; batch normalisation over all" : "");
}

static std::string shards_line(const RunSetup& task, const Trainer& trainer, int ranks) {
  const StrategyEntry& strategy = task.options.parallel.entry();
  return concat("shards ", ranks, " of the optimizer's state",
                strategy.shards(Sharded::weights)     ? ", the gradients and the weights"
                : strategy.shards(Sharded::gradients) ? " and the gradients"
                                                      : "",
                "; with the weights ", megabytes(trainer.state_bytes()), " on this rank instead of ",
                megabytes(model_state_bytes(model_size(*task.model), task.options.step, {}, 1)));
}

static std::string replicas_line(const RunSetup& task) {
  std::string names;
  for (const Device device : task.replicas->devices()) names += concat(names.empty() ? "" : ", ", device);
  return concat("dp     replicas on ", names, task.options.parallel.keeps_replicas() ? ", kept between steps" : "",
                task.options.parallel.sync_bn ? "; batch normalisation over all" : "",
                "; running statistics of replica 0");
}

std::vector<std::string> introduction(const RunSetup& task, const Trainer& trainer, const World& world,
                                      const RunDir& run) {
  std::vector<std::string> out;
  if (const std::string note = precision_note(task.options.execution); !note.empty()) out.push_back("note   " + note);
  out.push_back(data_line(task.data, trainer.learner()));
  if (task.tested)
    out.push_back(concat("kNN    tested with ", task.tested->train.name, " (", task.tested->train.source,
                         "): ", with_commas(task.tested->train.size()), " training, ",
                         with_commas(task.tested->test.size()), " test images"));
  out.push_back(model_line(task, trainer));
  if (const std::string note = warmup_beyond_end(trainer.schedule()); !note.empty()) out.push_back("note   " + note);
  if (task.initial) out.push_back(weights_line(task));
  if (world.size() > 1) out.push_back(ranks_line(task.options, world));
  if (world.size() > 1 && task.options.parallel.entry().shards())
    out.push_back(shards_line(task, trainer, world.size()));
  if (task.replicas) out.push_back(replicas_line(task));
  out.push_back("run    " + run.path());
  return out;
}

}  // namespace ringtape::cli
