#include "train/loop/evaluate.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "autograd/autocast.h"
#include "autograd/ops.h"
#include "comm/parallel/agreement.h"
#include "core/part.h"
#include "nn/mode_guard.h"
#include "train/data/loader.h"
#include "train/evaluation/class_recall.h"
#include "train/evaluation/features.h"
#include "train/evaluation/knn.h"
#include "train/evaluation/snapshot_parts.h"
#include "train/evaluation/test_copies.h"
#include "train/loop/stopwatch.h"
#include "train/report/progress.h"

namespace ringtape {

static std::vector<int64_t> first_of(std::vector<int64_t> samples, int64_t batches) {
  if (batches > 0) samples.resize(size_t(std::min(int64_t(samples.size()), kEvalBatch * batches)));
  return samples;
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

Metrics evaluate(const Task& task, const Dataset& data, std::vector<int64_t> samples, const std::string& split,
                 const EvalOptions& options, Tensors* outputs, Snapshot* snapshot) {
  const NoGrad no_grad;
  const Autocast autocast(options.precision);
  const nn::ModeGuard mode(*task.model, false);
  samples = first_of(std::move(samples), options.limit_batches);
  const auto n = int64_t(samples.size());
  const std::vector<Part> parts = own_parts(n, options);
  const int64_t size = eval_batch(data.image());
  SharedPasses passes(n, size, *options.group, options.weights, options.interrupted);
  Stopwatch watch;
  Tensors kept;
  if (snapshot && !outputs) outputs = &kept;
  const Part own{parts.front().begin, parts.back().end};
  const int64_t batches = std::transform_reduce(parts.begin(), parts.end(), int64_t{0}, std::plus(),
                                                [size](const Part& p) { return (p.size() + size - 1) / size; });
  Progress bar(split, batches, options.progress);
  std::vector<Tally> tallies;
  ClassRecall recall(data.classes);
  int64_t at = 0;
  for (const Part& part : parts) {
    Tally& tally = tallies.emplace_back();
    if (part.size() == 0) continue;
    const Loader loader(data, {samples.begin() + part.begin, samples.begin() + part.end},
                        {.batch_size = std::min(size, part.size()), .workers = options.workers, .device = task.device});
    Loader::Epoch epoch = loader.epoch(0);
    while (const Batch* batch = epoch.next()) {
      if (!passes.begin(at)) break;
      const Tensor logits =
          mean_over_copies(options.copies, batch->x, [&task](const Tensor& x) { return task.classify(x); });
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
  if (snapshot)
    add_predictions(*snapshot, data, {samples.begin() + own.begin, samples.begin() + own.end}, *outputs,
                    *options.group);
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
  const std::vector<int64_t> queries = first_of(all_samples(test), options.limit_batches);
  const auto look = [&](const Features& own, const Features& all) {
    if (snapshot && group.rank() == 0) add_features(*snapshot, test, own_part(queries, group), own, train, bank, all);
  };
  Stopwatch watch;
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
