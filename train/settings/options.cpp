#include "train/settings/options.h"

#include <algorithm>
#include <filesystem>

#include "core/env.h"
#include "core/runtime.h"
#include "train/data/class_weights.h"
#include "train/data/dataset.h"
#include "train/model/methods.h"

namespace ringtape {
// Checks the ranges of RFC 3629.
static bool is_utf8(const std::string& s) {
  const auto byte = [&](size_t i) { return i < s.size() ? static_cast<unsigned char>(s[i]) : 0; };
  for (size_t i = 0; i < s.size();) {
    const int first = byte(i), second = byte(i + 1);
    const size_t length = first < 0x80   ? 1
                          : first < 0xc2 ? 0
                          : first < 0xe0 ? 2
                          : first < 0xf0 ? 3
                          : first < 0xf5 ? 4
                                         : 0;
    const int low = first == 0xe0   ? 0xa0
                    : first == 0xf0 ? 0x90
                                    : 0x80,
              high = first == 0xed   ? 0x9f
                     : first == 0xf4 ? 0x8f
                                     : 0xbf;
    if (length == 0 || (length > 1 && (second < low || second > high))) return false;
    for (size_t k = 2; k < length; ++k)
      if (byte(i + k) >> 6 != 2) return false;
    i += length;
  }
  return true;
}

void settle_model(TrainOptions& options) {
  if (options.model.name.empty()) options.model.name = find_dataset(options.data.set.name).model;
}

void settle_warmup(TrainOptions& options) {
  double& warmup = options.schedule.warmup_epochs;
  warmup = std::min(warmup, double(options.trainer.epochs));
}

MethodPlan method_plan(const TrainOptions& o) {
  return {o.method, o.model, o.views, o.parallel.sync_bn, o.evaluation.online_probe};
}

void check_pretraining(const TrainOptions& o, int ranks) {
  const nn::MethodEntry& entry = nn::find_method(o.method.name);
  const int64_t batch = o.trainer.batch_size;
  const int64_t least = entry.apart || (entry.each_image && o.parallel.sync_bn && ranks > 1) ? 1 : 2;
  RT_CHECK_AS(UsageError, batch >= least * ranks, "--batch-size ", batch, ": ", entry.name,
              entry.apart ? ": each of " : " compares the images of a batch; each of ", ranks,
              ranks == 1 ? " rank" : " ranks", " needs at least ", least,
              entry.each_image && least == 2 && ranks > 1 ? "; with --sync-bn, 1" : "");
  RT_CHECK_AS(UsageError, batch % ranks == 0, "--batch-size ", batch, ": not a multiple of the ", ranks,
              " ranks; each needs the same number of images");
  RT_CHECK_AS(UsageError, o.step.accumulate == 1, "--accumulate ", o.step.accumulate, ": ", entry.name,
              " is computed for all images of a batch at once; use a smaller --batch-size, or more ranks");
  const ViewOptions& views = o.views;
  RT_CHECK_AS(UsageError, views.count >= entry.least_views && (views.count <= 2 || entry.any_views), "--views ",
              views.count, ": ", entry.name, " takes ", entry.least_views,
              entry.any_views          ? " views or more"
              : entry.least_views == 2 ? " views"
                                       : " or 2 views");
  RT_CHECK_AS(UsageError, views.small_count == 0 || entry.any_views, "--small-views ", views.small_count, ": ",
              entry.name, " compares exactly two views");
  (void)views_of(views);
  const int64_t parts = ranks * o.parallel.own_devices();
  RT_CHECK_AS(UsageError, batch % parts == 0, "--batch-size ", batch, ": not a multiple of the ", parts, " devices");
  entry.check_batches(o.method.chosen(),
                      {.images = batch, .ranks = ranks, .devices = parts, .sync_bn = o.parallel.sync_bn});
}

static void check_parallel(const ParallelOptions& o, int ranks) {
  RT_CHECK_AS(UsageError, !o.sync_bn || o.entry().synchronizes(), "--sync-bn: does not support --strategy ",
              o.strategy.name, "; use --strategy ddp");
  const std::string& reduction = o.reducer.reduction.name;
  RT_CHECK_AS(UsageError, !o.entry().shards(Sharded::gradients) || !comm::find_reduction(reduction).needs_all,
              "--gradient-reduction ", reduction, ": needs whole gradients, which --strategy ", o.strategy.name,
              " does not keep; use zero1");
  check_ranks(o, ranks);
  check_shares(o, ranks);
  if (o.elastic.on) check_elastic(o);
}

// Flags that exclude each other.
static void check_pairs(const TrainOptions& o) {
  RT_CHECK_AS(UsageError, o.weights_key.empty() || !o.weights.empty(), "--weights-key ", o.weights_key,
              ": needs --weights, the file that has them");
  RT_CHECK_AS(UsageError, o.schedule.warmup_epochs <= double(o.trainer.epochs), "--warmup-epochs ",
              o.schedule.warmup_epochs, ": longer than the training of ", o.trainer.epochs, " epochs");
  RT_CHECK_AS(UsageError, o.limits.min_delta == 0 || o.limits.patience > 0,
              "--min-delta: has no effect without --patience");
  RT_CHECK_AS(UsageError, !o.run.resume || !o.run.name.empty(), "--resume: needs --run, the run to continue");
  RT_CHECK_AS(UsageError, !o.run.resume || !o.run.overwrite,
              "--resume and --overwrite: one continues the run, the other replaces it");
  RT_CHECK_AS(UsageError, !o.data.balanced || o.data.shuffle_buffer <= 0,
              "--balanced-sampling: draws from all images, which --shuffle-buffer ", o.data.shuffle_buffer,
              " does not; leave one of them out");
  RT_CHECK_AS(UsageError, o.schedule.base_lr == 0 || o.schedule.lr_scale == "none", "--lr-scale ", o.schedule.lr_scale,
              ": --base-lr already scales with the batch of all ranks; give only one of them");
  RT_CHECK_AS(
      UsageError, o.checkpoint.exported == "last" || o.checkpoint.every > 0,
      "--export best: --checkpoint-every 0 does not keep the best weights; set --checkpoint-every to 1 or more");
  const bool shares = o.parallel.shares > 0;
  RT_CHECK_AS(UsageError, !shares || !o.self_supervised(),
              "--shares: not for self-supervised methods, whose losses may compare all images of a batch");
  RT_CHECK_AS(UsageError, !shares || o.trainer.batch_size_per_rank == 0,
              "--shares and --batch-size-per-rank: the batch would depend on the ranks; use --batch-size");
  RT_CHECK_AS(UsageError, !shares || o.step.accumulate == 1,
              "--shares and --accumulate: shares are computed one after another, too; leave --accumulate out");
  RT_CHECK_AS(UsageError, !o.parallel.elastic.on || !o.self_supervised(),
              "--elastic: not for self-supervised methods, which need the same number of images on each rank");
}

static void check_batch(const TrainOptions& o, int ranks) {
  const int64_t batch = o.trainer.batch_size;
  RT_CHECK_AS(UsageError, batch >= ranks, "--batch-size ", batch, ": fewer images than the ", ranks, " ranks");
  RT_CHECK_AS(UsageError, o.step.accumulate <= batch, "--accumulate ", o.step.accumulate, ": more parts than the ",
              batch, " images of a batch");
}

static std::string absolute(const std::string& path) {
  return path.empty() ? "" : std::filesystem::absolute(path).lexically_normal().string();
}

TrainOptions resolve(TrainOptions options, int ranks) {
  settle(options.execution);
  const DatasetEntry& data = find_dataset(options.data.set.name);
  settle_model(options);
  if (options.data.dir.empty()) options.data.dir = env::data_dir();
  if (data.generated) options.data.dir.clear();
  for (std::string* const path : {&options.data.dir, &options.evaluation.dir, &options.weights})
    *path = absolute(*path);
  check_pairs(options);
  if (!options.limits.max_time.empty()) (void)seconds_of(options.limits.max_time, "--max-time");
  options.callbacks.chosen.check("callback");
  options.transforms.chosen.check("transform");
  check_parallel(options.parallel, ranks);
  if (options.trainer.batch_size_per_rank > 0) options.trainer.batch_size = options.trainer.batch_size_per_rank * ranks;
  settle_lr(options.schedule, options.trainer.batch_size);
  check_batch(options, ranks);
  if (options.self_supervised()) check_pretraining(options, ranks);
  else (void)changes_of(options.changes);
  (void)listed_class_weights(options.step.class_weights);
  for (const auto& [option, value] : values_of(options))
    RT_CHECK_AS(UsageError, !option->is_recorded() || is_utf8(value), "--", option->name,
                ": is not UTF-8, as config.toml requires; use a link with another name");
  return options;
}

}  // namespace ringtape
