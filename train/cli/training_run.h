#pragma once
#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "train/cli/command.h"
#include "train/loop/world.h"
#include "train/run/run_dir.h"
#include "train/settings/run_setup.h"

// A training of `train` and `pretrain`, from its components to the files of the run.
namespace ringtape::cli {

// A rank's part in a training. If ranks come and go, begin() and train() are called once for each generation.
class Role {
 public:
  virtual ~Role() = default;
  // Gives all ranks the same state: that of the run or, with a membership, of the rank that the assignment names.
  virtual void begin(Trainer& trainer, const World& world) = 0;
  virtual bool train(Trainer& trainer, const World& world) = 0;  // false: a signal stopped it
  virtual void leave() {}                                        // this process goes, the others do not
};
// The last metrics that a process of a membership knows. One that leads writes those that are missing.
using Backlog = std::deque<Metrics>;
std::string newest_lines(const Backlog* backlog);  // what a rank whose state others take may know alone; null: nothing
// Of rank 0, which writes the files of the run. `said`: the first line has been printed.
std::unique_ptr<Role> leader(const RunSetup& setup, const Invocation& invocation, bool said, Earlier earlier,
                             const Backlog* backlog = nullptr);
// Of another rank, which writes no files of the run.
std::unique_ptr<Role> follower(const RunSetup& setup, const Backlog* backlog = nullptr);

Earlier earlier(const RunOptions& o);      // what happens to an existing run
std::string on_save(const RunOptions& o);  // the command; empty: none

// The message of an error; if memory was exhausted, other than the memory that ranks share, with what would need less.
std::string error_text(const std::exception& e, const RunSetup& setup, const World& world);

// The summary at the end of a run, from all metrics that it reported. cli/run_summary.cpp
Json run_summary(const RunSetup& setup, const Trainer& trainer, const RunDir& run, const std::vector<Metrics>& all,
                 int ranks, double seconds);

}  // namespace ringtape::cli
