#include "train/loop/task.h"

#include <algorithm>

#include "autograd/autocast.h"
#include "autograd/create.h"
#include "autograd/ops.h"
#include "comm/parallel/agreement.h"
#include "core/log.h"
#include "nn/mode_guard.h"
#include "train/data/loader.h"
#include "train/evaluation/features.h"
#include "train/evaluation/knn.h"
#include "train/evaluation/snapshot_parts.h"
#include "train/io/safetensors_header.h"
#include "train/loop/stopwatch.h"
#include "train/loop/world.h"
#include "train/model/methods.h"
#include "train/report/progress.h"

namespace ringtape {

static std::vector<int64_t> first_of(std::vector<int64_t> samples, int64_t batches) {
  if (batches > 0) samples.resize(size_t(std::min(int64_t(samples.size()), kEvalBatch * batches)));
  return samples;
}

Metrics epoch_metrics(comm::ProcessGroup& group, const Tally& own, const std::string& split, double seconds,
                      const Task& task) {
  const Tally tally = of_all(group, own);
  Metrics m;
  m.split = split;
  m.loss = tally.loss(), m.top1 = tally.top1(), m.top5 = tally.top5();
  m.images = tally.samples();
  m.seconds = seconds;
  m.images_per_s = seconds > 0 ? double(tally.samples()) / seconds : 0;
  int64_t peak = 0;
  for (const Device device : task.devices()) peak = std::max(peak, int64_t(memory_stats(device).peak));
  m.peak_bytes = max_over_ranks(group, double(peak));
  if (group.size() > 1) m.ranks = group.size();
  return m;
}

Task::Task(const TrainOptions& wanted, int ranks, const Beginning& beginning)
    : options(resolve(wanted, ranks)), device(parse_device(options.execution.device)) {
  set_threads(int(options.execution.threads));
  const DatasetEntry& entry = find_dataset(options.data.set.name);
  data = (beginning.load ? beginning.load : entry.load)({.dir = options.data.dir,
                                                         .settings = options.data.set.chosen(),
                                                         .seed = uint64_t(options.execution.seed),
                                                         .progress = beginning.leads && !options.run.json,
                                                         .train = beginning.train,
                                                         .test = beginning.test,
                                                         .begins = beginning.reading});
  if (beginning.leads)
    for (const std::string& note : data.notes) log_warn(note);
  if (options.data.normalize == "imagenet") normalize_as_imagenet(data);
  normalize_as(data, beginning.data);
  keep_on_device(data, device);
  if (options.self_supervised()) options.data.val_size = 0;
  if (options.data.val_size < 0) options.data.val_size = default_val_size(entry, data.train.size());
  manual_seed(uint64_t(options.execution.seed));
  spec = {data.train.images.shape().without(0), data.train.classes, options.model.chosen()};
  if (beginning.check) beginning.check(spec);
  const auto make = [this]() -> std::unique_ptr<nn::Module> {
    if (!options.self_supervised()) return find_model(options.model.name).make(spec);
    return make_method(method_plan(options), spec);
  };
  model = make();
  if (!options.weights.empty()) {
    const TrainedOn before = trained_on(read_safetensors_header(options.weights).metadata, options.weights);
    const std::string last = classifier(*model, options.model.name).last_layer();
    last_layer = load_backbone(options.weights, *model, last, same_classes(data.train, before));
    for (const NamedTensor& t : weights_of(*model))
      check_finite(concat(options.weights, ": tensor '", t.name, "'"), t.tensor);
  }
  if (device != Device{}) nn::move_to(*model, device);
  const comm::Devices devices = devices_of(options.parallel, device.type);
  if (!devices.empty()) {
    const RandomState drawn = default_generator().state();
    replicas = std::make_unique<nn::DataParallel>(
        *model, make, devices,
        nn::DataParallel::Options{options.parallel.dp_persistent, options.parallel.sync_bn,
                                  options.execution.deterministic});
    default_generator().set_state(drawn);
  }
  learner = make_learner(options, *model, replicas.get());
}

std::map<std::string, std::string> weights_metadata(const Task& task) {
  std::map<std::string, std::string> out = weights_metadata(task.options);
  add_metadata(out, trained_on(task.data.train));
  return out;
}

Metrics evaluate(const Task& task, const Dataset& data, std::vector<int64_t> samples, const std::string& split,
                 bool progress, Tensors* outputs, comm::ProcessGroup& group, Snapshot* snapshot) {
  const NoGrad no_grad;
  const Autocast autocast(compute_dtype(task.options.execution));
  const nn::ModeGuard mode(*task.model, false);
  samples = own_part(first_of(std::move(samples), task.options.trainer.limit_eval_batches), group);
  Stopwatch watch;
  Tally tally;
  Tensors kept;
  if (snapshot && !outputs) outputs = &kept;
  if (!samples.empty()) {
    const int64_t batch_size = std::min(kEvalBatch, int64_t(samples.size()));
    const Loader loader(
        data, samples,
        {.batch_size = batch_size, .workers = int(task.options.execution.workers), .device = task.device});
    Progress bar(split, loader.batches(), progress);
    Loader::Epoch epoch = loader.epoch(0);
    while (const Batch* batch = epoch.next()) {
      const Tensor logits = task.learner->classify(batch->x);
      tally.add(cross_entropy(logits, batch->y), logits, batch->y);
      if (outputs) outputs->push_back(to(logits, Device{}));
      bar.update(batch->index + 1);
    }
    tally.finish();
  }
  const Metrics metrics = epoch_metrics(group, tally, split, watch.lap(), task);
  if (snapshot) add_predictions(*snapshot, data, samples, *outputs, group);
  return metrics;
}

Metrics evaluate_features(const Task& task, const std::vector<int64_t>& bank, bool progress, comm::ProcessGroup& group,
                          Snapshot* snapshot) {
  const TrainOptions& o = task.options;
  const Autocast autocast(compute_dtype(o.execution));
  const EmbedOptions embedding{
      .device = task.device, .workers = int(o.execution.workers), .progress = progress ? "kNN" : ""};
  const std::vector<int64_t> queries = first_of(all_samples(task.data.test), o.trainer.limit_eval_batches);
  const auto look = [&](const Features& own, const Features& all) {
    if (snapshot && group.rank() == 0)
      add_features(*snapshot, task.data.test, own_part(queries, group), own, task.data.train, bank, all);
  };
  Stopwatch watch;
  const Tally tally = knn_test(
      *task.model, [&](const Tensor& x) { return (*task.model)(x); }, task.data.train, bank, task.data.test, queries,
      o.evaluation.knn, embedding, group, look);
  Metrics m;
  m.split = "knn";
  m.top1 = tally.top1(), m.top5 = tally.top5();
  m.seconds = watch.lap();
  m.images = tally.samples();
  m.images_per_s = double(bank.size() + queries.size()) / *m.seconds;
  return m;
}

}  // namespace ringtape
