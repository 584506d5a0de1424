#include <algorithm>

#include "train/cli/compare.h"
#include "train/compare/plot.h"
#include "train/io/json.h"
#include "train/loop/model_state.h"

namespace ringtape::cli {

// The available ones of the usual three strategies.
std::string default_strategies() {
  std::string out;
  const std::vector<std::string> known = strategy_choices();
  for (const char* name : {"single", "dp", "ddp"})
    if (std::find(known.begin(), known.end(), name) != known.end()) out += concat(out.empty() ? "" : ",", name);
  return out;
}

// What model_state_bytes() gives for each strategy.
static std::string formula(const std::vector<ComparedStrategy>& all, const TrainOptions& options) {
  const int64_t parameters = all[0].runs[0].parameters;
  std::string out;
  for (const ComparedStrategy& s : all) {
    ParallelOptions parallel;
    parallel.strategy.name = s.name;
    const int ranks = parallel.entry().starts_ranks() ? int(s.devices) : 1;
    out += concat(out.empty() ? "" : ", ", s.name, " ",
                  megabytes(model_state_bytes({parameters}, options.step, parallel, ranks)));
  }
  return parameters == 0 ? "" : concat("Its formula: ", out, ". ");
}

int compare_strategies(const Invocation& invocation) {
  const Invocation common = training_flags(invocation, Use::train);
  TrainOptions options;
  apply_flags(options, own_flags(invocation, "strategy", ""));
  const std::string folder = concat("runs/compare-", options.model.name, "-", options.data.set.name);
  Comparison c = comparison_of(invocation, {default_strategies(), "2,4,42", folder});
  check_own_flags(common, "strategy", c.strategies);
  std::vector<ComparedStrategy> all;
  for (const std::string& strategy : c.strategies) {
    const int64_t devices = find_strategy(strategy).one_device() ? 1 : options.parallel.devices;
    all.push_back({strategy, devices, {}});
    Contender& t = c.trainings.emplace_back(
        Contender{concat(strategy, "-", devices), Use::train, own_flags(common, "strategy", strategy)});
    t.flags.flags.emplace_back("strategy", strategy), t.flags.flags.emplace_back("devices", std::to_string(devices));
  }
  TrainedRuns trained = train_all(c);
  if (trained.stopped) return trained.stopped;
  for (size_t i = 0; i < all.size(); ++i) all[i].runs = std::move(trained.runs[i]);
  const std::string notes = concat(
      c.seeds_text(),
      ". Speed-up: images/s divided by those of the first row. Peak: memory of tensors, maximum over the devices. ",
      "Model state: weights, gradients, optimizer and average, maximum over the ranks. ", formula(all, options),
      "Sent: bytes of all-reduce per rank (a reduce-scatter or an all-gather is half of one), or transfers between ",
      "the devices of dp. ", "Hidden: part of the communication time in which rank 0 did not wait.");
  const std::string title = title_of(options);
  write_findings(c, {title, comparison_table(all), notes, comparison_plot(all, title)},
                 {{"strategies", comparison_json(all)}});
  return 0;
}

}  // namespace ringtape::cli
