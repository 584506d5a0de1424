#include "train/task.h"

#include <algorithm>

#include "autograd/autocast.h"
#include "autograd/create.h"
#include "autograd/ops.h"
#include "core/log.h"
#include "train/data/loader.h"
#include "train/features.h"
#include "train/io/safetensors_header.h"
#include "train/knn.h"
#include "train/mode_guard.h"
#include "train/ranks.h"
#include "train/run/progress.h"
#include "train/stopwatch.h"
#include "train/world.h"

namespace ringtape {

static std::vector<int64_t> first_of(std::vector<int64_t> samples, int64_t batches) {
  if (batches > 0) samples.resize(size_t(std::min(int64_t(samples.size()), kEvalBatch * batches)));
  return samples;
}

Metrics figures(comm::ProcessGroup* group, const Tally& own, const std::string& split, double seconds, const Task& task) {
  const Tally tally = of_all(group, own);
  Metrics m;
  m.split = split;
  m.loss = tally.loss(), m.top1 = tally.top1(), m.top5 = tally.top5();
  m.images = tally.samples();
  m.seconds = seconds;
  m.images_per_s = seconds > 0 ? double(tally.samples()) / seconds : 0;
  int64_t peak = 0;
  for (const Device device : task.devices()) peak = std::max(peak, int64_t(memory_stats(device).peak));
  m.peak_bytes = most_of(group, double(peak));
  if (group) m.ranks = group->size();
  return m;
}

Task::Task(const TrainOptions& wanted, int ranks, const Beginning& beginning)
    : options(resolve(wanted, ranks)), device(parse_device(options.device)) {
  set_threads(int(options.threads));
  const DatasetEntry& entry = find_dataset(options.data);
  data = entry.load({options.data_dir, options.train_size, options.test_size, uint64_t(options.seed), options.image_size,
                     beginning.leads && !options.json, beginning.reading});
  if (beginning.leads)
    for (const std::string& note : data.notes) log_warn(note);
  if (options.normalize == "imagenet") normalize_as_imagenet(data);
  normalize_as(data, beginning.data);
  keep_on_device(data, device);
  if (!options.method.empty()) options.val_size = 0;
  if (options.val_size < 0) options.val_size = default_val_size(entry, data.train.size());
  manual_seed(uint64_t(options.seed));
  spec = {data.train.images.shape().without(0), data.train.classes, options.hidden, options.dropout, options.width, !options.no_stem_relu,
          options.stem_padding};
  if (beginning.check) beginning.check(spec);
  const auto make = [this]() -> std::unique_ptr<nn::Module> {
    if (options.method.empty()) return find_model(options.model).make(spec);
    return make_method(options, spec);
  };
  model = make();
  method = dynamic_cast<nn::Method*>(model.get());
  if (!options.weights.empty()) {
    const TrainedOn before = trained_on(read_safetensors_header(options.weights).metadata, options.weights);
    const std::string last = classifier(*model, options.model).last_layer();
    last_layer = load_backbone(options.weights, *model, last, same_classes(data.train, before));
  }
  if (device != Device{}) nn::move_to(*model, device);
  const comm::Devices devices = devices_of(options);
  if (devices.empty()) return;
  const RandomState drawn = default_generator().state();
  replicas = std::make_unique<nn::DataParallel>(
      *model, make, devices,
      nn::DataParallel::Options{options.dp_persistent, options.sync_bn, options.deterministic});
  default_generator().set_state(drawn);
}

std::map<std::string, std::string> weights_metadata(const Task& task) {
  std::map<std::string, std::string> out = weights_metadata(task.options);
  add_metadata(out, trained_on(task.data.train));
  return out;
}

Metrics evaluate(const Task& task, const Dataset& data, std::vector<int64_t> samples, const std::string& split, bool progress,
                 Tensors* outputs, comm::ProcessGroup* group) {
  const NoGrad no_grad;
  const Autocast autocast(parse_dtype(task.options.precision));
  const ModeGuard mode(*task.model, false);
  samples = own_part(first_of(std::move(samples), task.options.limit_eval_batches), group);
  Stopwatch watch;
  Tally tally;
  if (!samples.empty()) {
    const int64_t batch_size = std::min(kEvalBatch, int64_t(samples.size()));
    const Loader loader(data, std::move(samples),
                        {.batch_size = batch_size, .workers = int(task.options.workers), .device = task.device});
    Progress bar(split, loader.batches(), progress);
    Loader::Epoch epoch = loader.epoch(0);
    while (const Batch* batch = epoch.next()) {
      const Tensor logits = task.forward(batch->x);
      tally.add(cross_entropy(logits, batch->y), logits, batch->y);
      if (outputs) outputs->push_back(to(logits, Device{}));
      bar.update(batch->index + 1);
    }
    tally.finish();
  }
  return figures(group, tally, split, watch.lap(), task);
}

Metrics evaluate_features(const Task& task, const std::vector<int64_t>& bank, bool progress, comm::ProcessGroup* group) {
  const TrainOptions& o = task.options;
  const Autocast autocast(parse_dtype(o.precision));
  const EmbedOptions embedding{.device = task.device, .workers = int(o.workers), .progress = progress ? "kNN" : ""};
  const std::vector<int64_t> queries = first_of(all_samples(task.data.test), o.limit_eval_batches);
  Stopwatch watch;
  const Tally tally = knn_test(
      *task.model, [&](const Tensor& x) { return (*task.model)(x); }, task.data.train, bank, task.data.test, queries,
      {o.knn_k, o.knn_temperature}, embedding, group);
  Metrics m;
  m.split = "knn";
  m.top1 = tally.top1(), m.top5 = tally.top5();
  m.seconds = watch.lap();
  m.images = tally.samples();
  m.images_per_s = double(bank.size() + queries.size()) / *m.seconds;
  return m;
}

}  // namespace ringtape
