#pragma once
#include <exception>
#include <string>
#include <vector>

#include "train/cli/command.h"
#include "train/loop/world.h"
#include "train/run/run_dir.h"
#include "train/settings/run_setup.h"

// A training of `train` and `pretrain`, from its components to the files of the run.
namespace ringtape::cli {

// Trains on rank 0, which writes the files of the run. `said`: the first line has been printed. Returns false if a
// signal stopped it.
bool lead(RunSetup& setup, const World& world, const Invocation& invocation, bool said);
// Trains on another rank, which writes no files of the run. Returns false if a signal stopped it.
bool follow(RunSetup& setup, const World& world);

Earlier earlier(const RunOptions& o);      // what happens to an existing run
std::string on_save(const RunOptions& o);  // the command; empty: none
void print_line(const std::string& text);  // at once

// The message of an error; if memory was exhausted, other than the memory that ranks share, with what would need less.
std::string error_text(const std::exception& e, const RunSetup& setup, const World& world);

// The summary at the end of a run, from all metrics that it reported. cli/run_summary.cpp
Json run_summary(const RunSetup& setup, const Trainer& trainer, const RunDir& run, const std::vector<Metrics>& all,
                 int ranks, double seconds);

}  // namespace ringtape::cli
