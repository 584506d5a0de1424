#pragma once
#include "train/cli/common.h"
#include "train/compare/table.h"
#include "train/io/json.h"

namespace ringtape::cli {

// Splits "a,b" into words. Throws UsageError, naming the flag, for repeated or empty ones.
std::vector<std::string> words_of(const std::string& flag, const std::string& list);
// The same for whole numbers from 1 to `high`.
std::vector<int64_t> numbers_of(const std::string& flag, const std::string& list, int64_t high);

// A training of a comparison; a separate process runs it once per seed.
struct Contender {
  std::string name;  // "ddp-2"
  Use use;           // `train` or `pretrain`
  Invocation flags;  // its flags
};

TrainOptions options_of(const Contender& training);  // the options of a new run; throws UsageError
// The same, of one with this combination; `ranks`: the processes, if they are known. Also throws UsageError for what
// the training would refuse before it begins.
TrainOptions checked_options(const Contender& training, const Combination& settings, std::optional<int> ranks = {});

// A sweep: all combinations of the values of --vary; without the flag an empty one. Throws UsageError.
std::vector<Combination> combinations_of(const Invocation& invocation);
// The flags with those of a combination.
Invocation with(Invocation flags, const Combination& settings);
// Values as the settings of a run have them: 0.001 for 1e-3.
Combination values_in(const TrainOptions& options, Combination settings);
std::string folder_of(const Combination& settings);     // "lr-0.001-hidden-32-"
std::string varied_names(const Combination& settings);  // "lr-hidden-"

// What to run, and where to write the results.
struct Comparison {
  std::vector<Contender> trainings;
  std::vector<std::string> strategies, seeds;
  std::string out;  // folder
  bool overwrite = false, json = false;
  // Only figures of the runs matter: none keeps its weights, and one that runs out of memory is left out.
  bool measures = false;
  std::string command;  // as typed

  void add(Contender training);    // throws UsageError if there is one of its name
  std::string seeds_text() const;  // "Seed 0", "Mean ± standard deviation over the seeds 2, 4"
};

std::vector<std::string> strategy_choices();
std::vector<Flag> training_flags();  // flags that a comparison passes to its trainings
// Those that were given. Throws UsageError for flags that do not apply to such trainings.
Invocation training_flags(const Invocation& invocation, Use use);

// Settings of the components of a kind, "method" or "strategy": without those that the named component lacks.
Invocation own_flags(Invocation invocation, std::string_view kind, const std::string& name);
// Throws UsageError for one that none of these components has.
void check_own_flags(const Invocation& invocation, std::string_view kind, const std::vector<std::string>& names);

// Everything except the trainings; flags that are not given have the defaults in `otherwise`. Throws UsageError.
struct Otherwise {
  std::string strategies, seeds, out;
};
Comparison comparison_of(const Invocation& invocation, const Otherwise& otherwise);

// Runs all trainings that have not been run yet. One that fails is told, and the next ones follow. Throws the failure
// if all have failed, and UsageError at once if the first has flags that it refuses.
struct TrainedRuns {
  std::vector<std::vector<FinishedRun>> runs;  // by training, then by seed; without those that failed or were left out
  int stopped = 0;                             // exit code of the run that a signal stopped; else zero
  std::vector<std::string> failures;           // one line each

  void check() const;        // throws Error if there are any
  std::string note() const;  // them, to end a text with; "" if there are none
};
TrainedRuns train_all(const Comparison& comparison);

// The result: compare.md, compare.csv and compare.json, with a plot also compare.svg and the report, and the printed
// text.
struct Findings {
  std::string title;
  Table table;
  std::string notes, plot = "";  // Markdown; SVG
};
// `key`: of the table's rows in the JSON.
void write_findings(const Comparison& comparison, const Findings& findings, const std::string& key, Json json);
std::string title_of(const TrainOptions& options);  // "resnet18 on cifar10, 2 epochs"

// `compare` without these flags, with --methods, with --inference, and with --memory.
std::string default_strategies();
inline constexpr const char* kMemoryStrategies = "ddp,zero1,zero2,fsdp";  // by default
int compare_strategies(const Invocation& invocation);
int compare_methods(const Invocation& invocation);
int compare_inference(const Invocation& invocation);
int compare_memory(const Invocation& invocation);

}  // namespace ringtape::cli
