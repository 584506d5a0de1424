#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "train/view/viewed_run.h"

namespace ringtape {

// The runs that the page of `ringtape view` shows, and the answers to what it asks for, as JSON text (docs/view.md).
// May be used by several threads. Runs are known by the path that the folder of all has for them: a request cannot name
// anything else.
class RunList {
 public:
  // `paths`: runs, and folders that contain runs, down to kDeepest below them. None: the folder "runs", also if there
  // is none yet.
  explicit RunList(std::vector<std::string> paths);  // throws IoError for a path that is not there

  std::string runs();
  // Nothing for an unknown run or snapshot.
  std::optional<std::string> run(const std::string& id);
  std::optional<std::string> snapshot(const std::string& id, const std::string& name);
  // By run, from a position; without unknown runs, and without the last ones if there would be too much.
  std::string metrics(const std::map<std::string, int64_t>& wanted);

  // All of this at once, for a page without a server. Bounded: of metrics within epochs about kMostSteps lines of all
  // runs together, and kMostSnapshots snapshots, at equal distances; of each run its newest one.
  std::string everything();

  static constexpr int kDeepest = 3;
  static constexpr size_t kMostRuns = 1000, kMostSteps = 5000, kMostSnapshots = 8;

 private:
  void look();
  void look_in(const std::string& folder, const std::string& id, int depth, std::map<std::string, std::string>& found);
  ViewedRun* find(const std::string& id);
  Json list();

  std::vector<std::string> paths_;
  std::string root_;
  std::vector<std::string> first_;  // the runs to begin with
  std::chrono::steady_clock::time_point look_again_;
  std::map<std::string, ViewedRun> runs_;
  std::mutex mutex_;
};

}  // namespace ringtape
