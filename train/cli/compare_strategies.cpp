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

// The row of a combination of settings with a strategy; adds its training. No strategy: that which `train` would take.
static ComparedStrategy row_of(const Invocation& invocation, Comparison& c, const Combination& settings,
                               const std::string& strategy) {
  const Invocation whole = with(invocation, settings);
  const Invocation flags = training_flags(whole, Use::train);
  Contender t{"", Use::train, strategy.empty() ? flags : own_flags(flags, "strategy", strategy)};
  const auto add = [&](const char* name, const std::string& text) { t.flags.flags.emplace_back(name, text); };
  if (!strategy.empty()) add("strategy", strategy);
  if (!strategy.empty() && find_strategy(strategy).one_device()) add("devices", "1");
  else if (const std::string* const devices = whole.flag("devices")) add("devices", *devices);
  const TrainOptions options = checked_options(t, settings);
  ParallelOptions parallel = options.parallel;
  std::string& name = parallel.strategy.name;
  if (name == "auto") name = parallel.devices > 1 ? "ddp" : "single";
  const int64_t devices = parallel.entry().one_device() ? 1 : parallel.devices;
  Combination values = values_in(options, settings);
  t.name = concat(folder_of(values), name, "-", devices);
  c.add(std::move(t));
  std::erase_if(values, [](const auto& setting) { return setting.first == "devices"; });  // it has a column anyway
  return {name, devices, {}, values};
}

int compare_strategies(const Invocation& invocation) {
  const std::vector<Combination> combinations = combinations_of(invocation);
  const bool sweep = invocation.flag("vary");
  Comparison c = comparison_of(invocation, {default_strategies(), "2,4,42", ""});
  if (sweep && !invocation.flag("strategies")) c.strategies = {""};
  else check_own_flags(invocation, "strategy", c.strategies);
  std::vector<ComparedStrategy> all;
  for (const Combination& settings : combinations)
    for (const std::string& strategy : c.strategies) all.push_back(row_of(invocation, c, settings, strategy));
  const TrainOptions options = options_of(c.trainings.at(0));
  if (c.out.empty())
    c.out = concat("runs/compare-", varied_names(combinations[0]), options.model.name, "-", options.data.set.name);
  TrainedRuns trained = train_all(c);
  if (trained.stopped) return trained.stopped;
  for (size_t i = 0; i < all.size(); ++i) all[i].runs = std::move(trained.runs[i]);
  std::erase_if(all, [](const ComparedStrategy& s) { return s.runs.empty(); });
  std::vector<const ComparedStrategy*> rows;
  for (const ComparedStrategy& s : all) rows.push_back(&s);
  const std::string notes = concat(
      c.seeds_text(), ". ", best_text(rows),
      "Speed-up: images/s divided by those of the first row. Peak: memory of tensors, maximum over the devices. ",
      "Model state: weights, gradients, optimizer and average, maximum over the ranks. ",
      sweep ? "" : formula(all, options),
      "Sent: bytes of all-reduce per rank (a reduce-scatter or an all-gather is half of one), or transfers between ",
      "the devices of dp. ", "Hidden: part of the communication time in which rank 0 did not wait.", trained.note());
  const std::string title = title_of(options);
  write_findings(c, {title, comparison_table(all), notes, comparison_plot(all, title)}, "strategies",
                 {{"strategies", comparison_json(all)}});
  trained.check();
  return 0;
}

}  // namespace ringtape::cli
