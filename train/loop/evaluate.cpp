#include "train/loop/evaluate.h"

#include <algorithm>

#include "autograd/autocast.h"
#include "autograd/ops.h"
#include "autograd/prepared_by_size.h"
#include "comm/parallel/agreement.h"
#include "core/part.h"
#include "nn/mode_guard.h"
#include "train/data/loader.h"
#include "train/evaluation/class_recall.h"
#include "train/evaluation/features.h"
#include "train/evaluation/knn.h"
#include "train/evaluation/snapshot_parts.h"
#include "train/evaluation/test_copies.h"
#include "train/loop/lap_timer.h"
#include "train/report/progress.h"

namespace ringtape {

// Of so many batches, if that is not 0. They are spread over all: a folder has its images in the order of the classes.
static std::vector<int64_t> limited(std::vector<int64_t> samples, int64_t batches) {
  if (batches == 0) return samples;
  std::vector<int64_t> out;
  for (const int64_t i : evenly(int64_t(samples.size()), kEvalBatch * batches)) out.push_back(samples[size_t(i)]);
  return out;
}

Metrics epoch_metrics(comm::ProcessGroup& group, const Tally& tally, const std::string& split, double seconds,
                      const comm::Devices& devices) {
  Metrics m;
  m.split = split;
  m.loss = tally.loss(), m.top1 = tally.top1(), m.top5 = tally.top5();
  m.images = tally.samples();
  m.seconds = seconds;
  m.images_per_s = seconds > 0 ? double(tally.samples()) / seconds : 0;
  int64_t peak = 0;
  for (const Device device : devices) peak = std::max(peak, int64_t(memory_stats(device).peak));
  m.peak_bytes = max_over_ranks(group, double(peak));
  if (group.size() > 1) m.ranks = group.size();
  return m;
}

// This rank's parts of n samples, which follow one another.
static std::vector<Part> own_parts(int64_t n, const EvalOptions& options) {
  const int ranks = options.group->size(), rank = options.group->rank();
  if (options.shares == 0) return {part_of(n, ranks, rank)};
  std::vector<Part> out;
  const Part own = part_of(options.shares, ranks, rank);
  for (int64_t w = own.begin; w < own.end; ++w) out.push_back(part_of(n, int(options.shares), int(w)));
  return out;
}

// The network's logits, prepared for inference if this process has one network with all of its weights.
static std::function<Tensor(const Tensor&)> classifier_of(const Task& task, const EvalOptions& options) {
  const auto classify = [&task](const Tensor& x) { return task.classify(x); };
  if (options.weights || task.replicas) return classify;
  return [prepared = std::make_shared<PreparedBySize>(classify, options.precision)](const Tensor& x) {
    return (*prepared)(x);
  };
}

static int64_t batches_of(const std::vector<Part>& parts, int64_t size) {
  int64_t out = 0;
  for (const Part& p : parts) out += (p.size() + size - 1) / size;
  return out;
}

Metrics evaluate(const Task& task, const Dataset& data, std::vector<int64_t> samples, const std::string& split,
                 const EvalOptions& options, Tensors* outputs, Snapshot* snapshot) {
  const NoGrad no_grad;
  const Autocast autocast(options.precision);
  const nn::ModeGuard mode(*task.model, false);
  samples = limited(std::move(samples), options.limit_batches);
  using List = std::vector<int64_t>;
  const auto some = [&](const Part& p) { return List(samples.begin() + p.begin, samples.begin() + p.end); };
  const std::vector<Part> parts = own_parts(int64_t(samples.size()), options);
  const int64_t size = eval_batch(data.image());
  SharedPasses passes(int64_t(samples.size()), size, *options.group, options.weights, options.interrupted);
  LapTimer watch;
  const std::function<Tensor(const Tensor&)> classify = classifier_of(task, options);
  Tensors kept;
  if (snapshot && !outputs) outputs = &kept;
  Progress bar(split, batches_of(parts, size), options.progress);
  std::vector<Tally> tallies;
  ClassRecall recall(data.classes);
  int64_t at = 0;
  for (const Part& part : parts) {
    Tally& tally = tallies.emplace_back();
    if (part.size() == 0) continue;
    const Loader loader(data, some(part),
                        {.batch_size = std::min(size, part.size()), .workers = options.workers, .device = task.device});
    Loader::Epoch epoch = loader.epoch(0);
    while (const Batch* batch = epoch.next()) {
      if (!passes.begin(at)) break;
      const Tensor logits = mean_over_copies(options.copies, batch->x, classify);
      const Tensor ranks = ranks_of(logits, batch->y);
      tally.add(cross_entropy(logits, batch->y), ranks, batch->y.size());
      recall.add(ranks, batch->y);
      if (outputs) outputs->push_back(to(logits, Device{}));
      bar.update(++at);
    }
    tally.finish();
  }
  passes.end();
  const Tally all =
      options.shares > 0 ? of_shares(*options.group, tallies, options.shares) : of_all(*options.group, tallies[0]);
  const ClassRecall::Summary classes = recall.of_all(*options.group);
  Metrics metrics = epoch_metrics(*options.group, all, split, watch.lap(), task.devices());
  metrics.balanced = classes.mean, metrics.uneven = classes.uneven;
  const Part own{parts.front().begin, parts.back().end};
  if (snapshot) add_predictions(*snapshot, data, some(own), *outputs, *options.group);
  return metrics;
}

Metrics evaluate_features(const Task& task, const std::vector<int64_t>& bank, const Knn& knn,
                          const EvalOptions& options, Snapshot* snapshot) {
  comm::ProcessGroup& group = *options.group;
  const Autocast autocast(options.precision);
  const EmbedOptions embedding{.device = task.device,
                               .workers = options.workers,
                               .progress = options.progress ? "kNN" : "",
                               .weights = options.weights,
                               .interrupted = options.interrupted};
  const Dataset &train = task.judges()->train, &test = task.judges()->test;
  const std::vector<int64_t> queries = limited(all_samples(test), options.limit_batches);
  const auto look = [&](const Features& own, const Features& all) {
    if (snapshot && group.rank() == 0) add_features(*snapshot, test, own_part(queries, group), own, train, bank, all);
  };
  LapTimer watch;
  const Tally tally = knn_test(
      *task.model, [&](const Tensor& x) { return (*task.model)(x); }, train, bank, test, queries, knn, embedding, group,
      look);
  Metrics m;
  m.split = "knn";
  m.top1 = tally.top1(), m.top5 = tally.top5();
  m.seconds = watch.lap();
  m.images = tally.samples();
  m.images_per_s = double(bank.size() + queries.size()) / *m.seconds;
  return m;
}

}  // namespace ringtape
