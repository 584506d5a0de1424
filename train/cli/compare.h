#pragma once
#include "train/cli/common.h"
#include "train/compare/finished_run.h"
#include "train/io/json.h"

namespace ringtape::cli {

// "a,b" as its words, each once. Throws UsageError, naming the flag.
std::vector<std::string> words_of(const std::string& flag, const std::string& list);

// A training of a comparison, which a process of its own does once with each seed.
struct Training {
  std::string name;  // "ddp-2"
  Use use;           // by `train` or by `pretrain`
  Invocation flags;  // that ask for it
};

TrainOptions options_of(const Training& training);  // where it is begun; throws UsageError

// What is to be run, and where to.
struct Comparison {
  std::vector<Training> trainings;
  std::vector<std::string> strategies, seeds;
  std::string out;  // folder
  bool overwrite = false, json = false;
  std::string command;  // as it was typed

  std::string seeds_text() const;  // "Seed 0", "Mean ± standard deviation over the seeds 2, 4"
};

std::vector<std::string> strategy_choices();
std::vector<Flag> training_flags();  // that a comparison hands on
// Those that were given. Throws UsageError for flags that trainings of that kind do not have.
Invocation training_flags(const Invocation& invocation, Use use);

// All but the trainings; what is not said is as in `otherwise`. Throws UsageError.
struct Otherwise {
  std::string strategies, seeds, out;
};
Comparison comparison_of(const Invocation& invocation, const Otherwise& otherwise);

// Trains each that has not been trained yet.
struct TrainedRuns {
  std::vector<std::vector<FinishedRun>> runs;  // by training, a seed each
  int stopped = 0;                             // the exit code with which a signal has ended it before that; else zero
};
TrainedRuns train_all(const Comparison& comparison);

// What becomes of it: compare.md, compare.json and compare.svg, and what is printed.
struct Findings {
  std::string title, table, notes, plot;  // Markdown; SVG
};
void write_findings(const Comparison& comparison, const Findings& findings, Json json);
std::string title_of(const TrainOptions& options);  // "resnet18 on cifar10, 2 epochs"

// `compare` as it is, with --methods, and with --inference.
std::string default_strategies();
int compare_strategies(const Invocation& invocation);
int compare_methods(const Invocation& invocation);
int compare_inference(const Invocation& invocation);

}  // namespace ringtape::cli
