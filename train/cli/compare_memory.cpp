#include <fmt/core.h>

#include "core/runtime.h"
#include "train/cli/compare.h"
#include "train/compare/memory_table.h"
#include "train/loop/model_state.h"
#include "train/settings/run_setup.h"

namespace ringtape::cli {
namespace {

constexpr int64_t kSteps = 3;  // the first one still makes the memory that later ones have

// The parameters of the network that the options describe.
struct Parameters {
  ModelSize size{};
  std::vector<Part> places;  // in flat buffers
};

// Makes the network for a moment, without its images.
Parameters parameters_of(TrainOptions options) {
  options.execution.device = "cpu", options.parallel = {}, options.weights.clear();
  Parameters out;
  {
    const RunSetup setup(resolve(std::move(options)), {.leads = false, .train = false, .test = false});
    out = {model_size(*setup.model), flat_places(nn::named_parameters(*setup.model))};
  }
  runtime(Device{}).release_cached(0);
  return out;
}

// Adds flags for the shortest training that shows its memory, except those that are given. A batch gets an image for
// each rank.
void shorten(Invocation& flags, const TrainOptions& options, int ranks) {
  const std::string* const path = flags.flag("config");
  const Given config = path ? read_config(*path) : Given{};
  const auto add = [&](const char* name, int64_t value) {
    if (!flags.flag(name) && !config.find(name) && option_text(options, name))
      flags.flags.emplace_back(name, std::to_string(value));
  };
  int64_t batch = options.trainer.batch_size;
  if (const int64_t each = options.trainer.batch_size_per_rank; each > 0) {
    batch = each * ranks;
  } else if (batch < ranks) {
    batch = ranks;
    std::erase_if(flags.flags, [](const auto& flag) { return flag.first == "batch-size"; });
    flags.flags.emplace_back("batch-size", std::to_string(batch));
  }
  add("epochs", 1), add("limit-train-batches", kSteps), add("limit-eval-batches", 1);
  add("train-size", kSteps * batch), add("test-size", ranks), add("val-size", 0);
  add("checkpoint-every", 0), add("snapshots", 0);
}

std::vector<int64_t> devices_of(const Invocation& invocation, const TrainOptions& options) {
  const std::string* const list = invocation.flag("devices");
  return list ? numbers_of("devices", *list, 4096) : std::vector{options.parallel.devices};
}

// Adds a row and its training, which has these flags.
void add_row(Comparison& c, std::vector<MemoryRow>& rows, const std::string& strategy, int64_t devices,
             const Invocation& common, const TrainOptions& options, const Parameters& parameters) {
  const int ranks = find_strategy(strategy).starts_ranks() ? int(devices) : 1;
  Contender& t = c.trainings.emplace_back(
      Contender{concat(strategy, "-", devices), Use::train, own_flags(common, "strategy", strategy)});
  shorten(t.flags, options, ranks);
  t.flags.flags.emplace_back("strategy", strategy), t.flags.flags.emplace_back("devices", std::to_string(devices));
  const TrainOptions own = checked_options(t, {}, ranks);
  rows.push_back({.strategy = strategy,
                  .devices = devices,
                  .formula = model_state_bytes(parameters.size, own.step, own.parallel, ranks),
                  .buckets = bucket_bytes(parameters.places, own.step, own.parallel, ranks)});
}

constexpr const char* kNotes =
    "Of the rank that has most. Model state: weights, gradients, optimizer and average, which stay from step to step; "
    "the formula is in docs/data-parallel.md. Buckets: of gradients and weights that come and go in a step. Peaks in "
    "the training: of tensors, with state, buckets, activations and images; of the process, with all else and the "
    "pages of shared memory that it has touched. A batch has at least an image for each rank.";

}  // namespace

int compare_memory(const Invocation& invocation) {
  RT_CHECK_AS(UsageError, !invocation.flag("seeds"), "--seeds: memory does not depend on it; leave it out");
  Invocation asked = invocation;
  std::erase_if(asked.flags, [](const auto& flag) { return flag.first == "devices"; });
  const Invocation common = training_flags(asked, Use::train);
  TrainOptions options;
  apply_flags(options, own_flags(asked, "strategy", ""));
  const std::string folder = concat("runs/compare-memory-", options.model.name, "-", options.data.set.name);
  Comparison c = comparison_of(invocation, {kMemoryStrategies, "1", folder});
  c.measures = true;
  check_own_flags(asked, "strategy", c.strategies);
  const std::vector<int64_t> counts = devices_of(invocation, options);
  const Parameters parameters = parameters_of(options);
  std::vector<MemoryRow> rows;
  for (const int64_t devices : counts)
    for (const std::string& strategy : c.strategies) {
      if (strategy != "single") add_row(c, rows, strategy, devices, common, options, parameters);
      else if (devices == counts[0]) add_row(c, rows, strategy, 1, common, options, parameters);
    }
  TrainedRuns trained = train_all(c);
  if (trained.stopped) return trained.stopped;
  for (size_t i = 0; i < rows.size(); ++i)
    if (!trained.runs[i].empty()) rows[i].run = std::move(trained.runs[i][0]);
  const int64_t all = parameters.size.parameters + parameters.size.frozen;
  const std::string title = fmt::format("memory of {} with {}, {:.1f} M parameters", options.model.name,
                                        options.step.optimizer.name, double(all) / 1e6);
  write_findings(c, {title, memory_table(rows), kNotes}, "memory",
                 {{"parameters", all}, {"memory", memory_json(rows)}});
  trained.check();
  return 0;
}

}  // namespace ringtape::cli
