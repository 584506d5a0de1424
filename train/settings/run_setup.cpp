#include "train/settings/run_setup.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "comm/parallel/agreement.h"
#include "core/log.h"
#include "core/runtime.h"
#include "kernels/arithmetic.h"
#include "nn/freeze.h"
#include "train/data/class_weights.h"
#include "train/data/files/encoded_images.h"
#include "train/io/weights_file.h"
#include "train/loop/world.h"
#include "train/model/methods.h"

namespace ringtape {
namespace {

Splits load(const TrainOptions& o, const Beginning& beginning) {
  const DatasetEntry& entry = find_dataset(o.data.set.name);
  Splits out = (beginning.load ? beginning.load : entry.load)({.dir = o.data.dir,
                                                               .settings = o.data.set.chosen(),
                                                               .seed = uint64_t(o.execution.seed),
                                                               .progress = beginning.leads && !o.run.json,
                                                               .train = beginning.train,
                                                               .test = beginning.test,
                                                               .begins = beginning.reading,
                                                               .labels = beginning.labels && !o.self_supervised()});
  if (beginning.leads)
    for (const std::string& note : out.notes) log_warn(note);
  if (o.data.normalize == "imagenet") normalize_as_imagenet(out);
  normalize_as(out, beginning.data);
  return out;
}

// The images of --knn-data, normalised as those that train.
std::optional<Splits> load_tested(const TrainOptions& o, const Beginning& beginning, const Dataset& train) {
  const EvaluationOptions& e = o.evaluation;
  RT_CHECK_AS(UsageError, !e.data.empty() || e.dir.empty(), "--knn-dir ", e.dir, ": needs --knn-data");
  if (!o.self_supervised() || e.data.empty() || beginning.load) return {};
  const Shape image = train.image();
  Splits out = find_dataset(e.data).load({.dir = e.dir,
                                          .seed = uint64_t(o.execution.seed),
                                          .progress = beginning.leads && !o.run.json,
                                          .side = std::min(image[0], image[1])});
  if (beginning.leads)
    for (const std::string& note : out.notes) log_warn(note);
  const Shape other = out.train.image();
  RT_CHECK_AS(UsageError, find_model(o.model.name).accepts({image, 0, o.model.chosen()}, other), "--knn-data ", e.data,
              ": has images of ", other, ", ", o.model.name, " is trained on images of ", image);
  normalize_as(out, trained_on(train));
  return out;
}

// Loads the initial weights into a network, if the options name any.
std::optional<LoadedWeights> load_weights(const TrainOptions& o, nn::Module& network, const Dataset& train) {
  const std::string& path = o.weights;
  if (path.empty()) return {};
  const TrainedOn before = trained_on(read_weights_header(path, o.weights_key).metadata, path);
  LoadedWeights out = load_backbone(path, network, last_layer_of(network), same_classes(train, before), o.weights_key);
  for (const NamedTensor& t : weights_of(network)) check_finite(concat(path, ": tensor '", t.name, "'"), t.tensor);
  return out;
}

// Throws UsageError if the run cannot be judged with this split.
void check_split(const TrainOptions& o, const Task& task, const Holdout& split) {
  const Splits* const known = task.judges();
  const bool judges = o.self_supervised() ? o.evaluation.every > 0 && known : !split.val.empty();
  const char* const how = !o.self_supervised() ? "leave out --val-size 0"
                          : known              ? "leave out --knn-every 0"
                                               : "the images have no labels: name others with --knn-data";
  RT_CHECK_AS(UsageError, o.limits.patience == 0 || judges, "--patience ", o.limits.patience, ": needs validations; ",
              how);
  RT_CHECK_AS(UsageError, o.checkpoint.best_by == CheckpointOptions().best_by || judges, "--best-by ",
              o.checkpoint.best_by, ": needs validations; ", how);
  RT_CHECK_AS(UsageError, o.trainer.val_every == 0 || judges, "--val-every ", o.trainer.val_every,
              ": needs validations; ", how);
  const std::string& course = o.schedule.course.name;
  RT_CHECK_AS(UsageError, judges || !find_entry(schedules(), course, "schedule").watch, "--schedule ", course,
              ": needs validations; ", how);
  if (!o.self_supervised()) {
    RT_CHECK_AS(UsageError, o.checkpoint.exported == "last" || !split.val.empty(),
                "--export best: needs a validation to find the best weights; leave out --val-size 0");
    return;
  }
  RT_CHECK_AS(UsageError, task.data.train.classes > 0 || !o.evaluation.online_probe,
              "--online-probe: learns labels, which the images of ", task.data.train.source, " do not have");
  RT_CHECK_AS(UsageError, task.data.test.size() > 0 || !o.evaluation.online_probe,
              "--online-probe: is tested with test images, which ", task.data.train.source, " does not have");
  if (!known) return;
  const auto images = task.tested ? known->train.size() : int64_t(split.train.size());
  const int64_t k = o.evaluation.knn.k, bank = o.evaluation.bank;
  RT_CHECK_AS(UsageError, k <= images, "--knn-k ", k, ": more neighbours than the ", images, " training images");
  RT_CHECK_AS(UsageError, bank == 0 || k <= bank, "--knn-k ", k, ": more neighbours than the ", bank,
              " images of --knn-bank");
}

// The images in archives are read in order.
int64_t shuffle_buffer(const DataOptions& o, const Dataset& train) {
  if (o.shuffle_buffer >= 0 || o.balanced) return std::max<int64_t>(o.shuffle_buffer, 0);
  return train.is_encoded() && train.encoded->shard(0) >= 0 ? kShuffleBuffer : 0;
}

// Few images that learn labels are one batch, even if it may be larger.
int64_t largest_batch(const TrainOptions& o, const Holdout& split) {
  const auto all = int64_t(split.train.size());
  return o.self_supervised() || all == 0 ? o.trainer.batch_size : std::min(o.trainer.batch_size, all);
}

LoaderConfig loading(const TrainOptions& o, const Task& task, const Holdout& split, const comm::ProcessGroup& group) {
  return {.batch_size = largest_batch(o, split),
          .shuffle = true,
          .shuffle_buffer = shuffle_buffer(o.data, task.data.train),
          .balanced = o.data.balanced,
          .seed = uint64_t(o.execution.seed),
          .workers = int(o.execution.workers),
          .ahead = o.execution.prefetch_memory << 20,
          .device = task.device,
          .transforms = make_transforms(o.transforms),
          .rank = group.rank(),
          .ranks = group.size(),
          .shares = o.parallel.shares};
}

// Those that train, and those that validate.
Holdout split_of(const TrainOptions& o, const Splits& data) {
  Holdout out = holdout(data.train.size(), data.val ? 0 : o.data.val_size, uint64_t(o.execution.seed));
  if (data.val) out.val = all_samples(*data.val);
  out.train = fraction_of(out.train, data.train.labels, data.train.classes, o.data.train_fraction);
  return out;
}

// For ModelSpec::images: some that train, as they are.
Tensor first_images(const TrainOptions& o, const Splits& data, Device device) {
  constexpr int64_t kMax = 5000, kElements = int64_t{1} << 26;
  const int64_t most = std::clamp<int64_t>(kElements / std::max<int64_t>(data.train.image().size(), 1), 1, kMax);
  std::vector<int64_t> samples = split_of(o, data).train;
  samples.resize(std::min(samples.size(), size_t(most)));
  const Loader loader(data.train, samples, {.batch_size = int64_t(samples.size()), .workers = 0, .device = device});
  return to(loader.epoch(0).next()->x, Device{});
}

// Of an average that has not yet left the weights behind with which it began.
void note_average(double decay, int64_t steps) {
  constexpr double kLittle = 0.05;
  const double left = std::pow(decay, double(steps));
  if (decay == 0 || steps == 0 || left <= kLittle) return;
  const double step_share = 1 - std::pow(kLittle, 1 / double(steps));
  log_warn(fmt::format(
      "--ema {:g}: after {} steps {:.0f} % of the average are still the weights at the start; with "
      "--ema {:g} it is {:.0f} %",
      decay, with_commas(steps), 100 * left, 1 - std::stod(fmt::format("{:.2g}", step_share)), 100 * kLittle));
}

// Of a batch larger than the data, and of an average over few steps.
void note_sizes(const TrainOptions& o, const Holdout& split, int64_t steps) {
  if (!o.run.resume) note_average(o.step.ema, steps);
  if (const int64_t batch = largest_batch(o, split); batch < o.trainer.batch_size)
    log_warn("--batch-size ", o.trainer.batch_size, ": all ", batch, " training images are one batch");
}

// Of frozen layers that nobody has trained.
void note_frozen(const TrainOptions& o) {
  if (!o.parameters.freeze.empty() && o.weights.empty() && !o.run.resume)
    log_warn("--freeze ", o.parameters.freeze, ": these layers keep random weights; --weights FILE gives trained ones");
}

std::map<std::string, std::string> metadata(const TrainOptions& o, const Dataset& train) {
  std::map<std::string, std::string> out = weights_metadata(o);
  add_metadata(out, trained_on(train));
  return out;
}

// `leads`: whether this process says that the flag is not used.
void settle_val_size(TrainOptions& options, const Splits& data, bool leads) {
  if (data.val && options.data.val_size >= 0 && leads && !options.self_supervised())
    log_warn("--val-size is not used: ", data.train.source, " has validation images of its own");
  if (data.val) options.data.val_size = -1;
  else if (options.data.val_size < 0)
    options.data.val_size = default_val_size(find_dataset(options.data.set.name), data.train.size());
}

}  // namespace

RunSetup::RunSetup(TrainOptions resolved, const Beginning& beginning) : options(std::move(resolved)) {
  device = parse_device(options.execution.device);
  model_name = options.model.name, method_name = options.method.name;
  set_threads(int(options.execution.threads));
  set_arithmetic(arithmetic_of(options.execution));
  data = load(options, beginning);
  if (options.transforms.chosen.names.empty() && !options.data.balanced) keep_on_device(data, device);
  tested = load_tested(options, beginning, data.train);
  if (options.self_supervised()) options.data.val_size = 0;
  settle_val_size(options, data, beginning.leads);
  manual_seed(uint64_t(options.execution.seed));
  spec = {data.train.image(), data.train.classes, options.model.chosen()};
  if (beginning.train) spec.images = [this] { return first_images(options, data, device); };
  if (beginning.check) beginning.check(spec);
  const auto make = [this, reads = beginning.weights]() -> std::unique_ptr<nn::Module> {
    if (options.self_supervised()) {
      MethodPlan plan = method_plan(options);
      if (reads) plan.load = [this](nn::Module& backbone) { initial = load_weights(options, backbone, data.train); };
      return make_method(plan, spec);
    }
    auto out = find_model(model_name).make(spec);
    const std::string& patterns = options.parameters.freeze;
    if (!patterns.empty()) nn::freeze(*out, frozen_by(patterns, *out, last_layer_of(*out)));
    return out;
  };
  model = make();
  if (!options.self_supervised() && beginning.weights) initial = load_weights(options, *model, data.train);
  if (device != Device{}) nn::move_to(*model, device);
  const comm::Devices devices = devices_of(options.parallel, device.type);
  if (devices.empty()) return;
  const RandomState drawn = default_generator().state();
  replicas = std::make_unique<nn::DataParallel>(
      *model, make, devices,
      nn::DataParallel::Options{options.parallel.keeps_replicas(), options.parallel.sync_bn,
                                options.execution.deterministic});
  default_generator().set_state(drawn);
}

EvalOptions eval_options(const TrainOptions& o, comm::ProcessGroup& group) {
  return {.precision = compute_dtype(o.execution),
          .workers = int(o.execution.workers),
          .limit_batches = o.trainer.limit_eval_batches,
          .copies = o.trainer.test_copies,
          .group = &group,
          .shares = o.parallel.shares};
}

std::unique_ptr<Learner> make_learner(const TrainOptions& o, const Task& task, const Holdout& split, int ranks) {
  if (!task.method())
    return supervised_learner(task, split,
                              {o.augmentation, o.step.label_smoothing, changes_of(o.changes),
                               class_weights(o.step.class_weights, task.data.train, split.train)});
  return self_supervised_learner(task, split,
                                 {.views = views_of(o.views),
                                  .transforms = make_transforms(o.transforms),
                                  .evaluation = o.evaluation,
                                  .seed = uint64_t(o.execution.seed),
                                  .images = o.trainer.batch_size / ranks});
}

std::unique_ptr<Step> make_step(const TrainOptions& o, const Task& task, const Learner& learner, double lr,
                                comm::ProcessGroup& group) {
  auto step = std::make_unique<Step>(*task.model, learner.objective(), o.step, o.execution, group, o.parallel);
  ParameterOptions parameters = o.parameters;
  if (o.self_supervised()) parameters = {.no_decay_norms = parameters.no_decay_norms};
  step->set_rules(rules_of(parameters, *task.model, last_layer_of(*task.model), o.schedule.lr));
  if (!learner.facts.fixed_lr.empty()) step->fix_lr(learner.facts.fixed_lr, lr);
  const bool repeats = find_model(o.model.name).repeats && (!task.method() || nn::find_method(o.method.name).repeats);
  if (repeats && !task.replicas && !o.execution.no_graph) step->record_steps();
  return step;
}

// Throws CommError unless all ranks have the same data and settings.
static void check_same_on_all(comm::ProcessGroup& group, const TrainOptions& o, const Splits& data,
                              const DataIdentity& identity) {
  const std::string counts = concat(data.train.size(), " training and ", data.test.size(), " test images\n");
  const std::string judging = data.val ? concat(data.val->size(), " validation images\n") : "";
  comm::check_same(group, "the data", counts + judging + lines_of(trained_on(data.train)));
  comm::check_same(group, "the settings", common_settings_text(o));
  comm::check_same(group, "the images", concat("labels ", identity.labels, "\nimages ", identity.pixels, "\n"));
}

static Schedule schedule_of(const TrainOptions& o, int ranks, const comm::Membership* membership,
                            int64_t steps_per_epoch) {
  if (membership) ranks = membership->options().ranks;
  if (o.parallel.shares > 0) ranks = int(o.parallel.shares);
  return Schedule(o.schedule, peak_lr(o.schedule, ranks), steps_per_epoch, o.trainer.epochs, o.limits.max_steps);
}

static std::function<std::vector<std::string>(const Course::Texts&)> changed_since(const TrainOptions& o) {
  return [o](const Course::Texts& before) { return changed_settings(o, before); };
}

Training make_training(RunSetup& setup, comm::ProcessGroup& group, const comm::Membership* membership) {
  const TrainOptions& o = setup.options;
  const Splits& data = setup.data;
  const DataIdentity identity = identity_of(data);
  const Holdout split = split_of(o, data);
  group.set_deterministic(o.execution.deterministic);
  check_same_on_all(group, o, data, identity);
  check_split(o, setup, split);
  setup.distribute(group, o.parallel.sync_bn);  // before the learner, which asks what a collapsed loss would be
  auto learner = make_learner(o, setup, split, group.size());
  auto loader =
      std::make_unique<Loader>(data.train, learner->split.train, learner->loading(loading(o, setup, split, group)));
  const int64_t limit = o.trainer.limit_train_batches;
  const int64_t steps_per_epoch = limit > 0 ? std::min(loader->batches(), limit) : loader->batches();
  const Schedule schedule = schedule_of(o, group.size(), membership, steps_per_epoch);
  if (group.rank() == 0) note_sizes(o, split, schedule.steps()), note_frozen(o);
  auto step = make_step(o, setup, *learner, schedule.lr(), group);
  if (const auto momentum = schedule.momentum_at(0)) step->set_momentum(*momentum);
  StepTrace trace(o.trace, concat(o.model.name, " on ", o.execution.device));
  trace.check_before(schedule.steps());
  return {.task = setup,
          .group = group,
          .learner = std::move(learner),
          .loader = std::move(loader),
          .step = std::move(step),
          .callbacks = make_callbacks(o.callbacks),
          .schedule = schedule,
          .trace = std::move(trace),
          .evaluation = eval_options(o, group),
          .epochs = o.trainer.epochs,
          .limits = o.limits,
          .checkpoint = o.checkpoint,
          .val_every = o.trainer.val_every,
          .log_every = o.run.log_every,
          .snapshots = o.run.snapshots,
          .seed = uint64_t(o.execution.seed),
          .membership = membership,
          .course = {kept_settings(o), changed_since(o), identity, steps_per_epoch},
          .metadata = metadata(o, data.train)};
}

Trainer make_trainer(RunSetup& setup, comm::ProcessGroup& group, const comm::Membership* membership) {
  return Trainer(make_training(setup, group, membership));
}

}  // namespace ringtape
