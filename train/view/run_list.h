#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "train/view/viewed_run.h"

namespace ringtape {

// The runs that the page of `ringtape view` shows, and the answers to what it asks for, as JSON text (docs/view.md).
// May be used by several threads. Runs are known by the path that the folder of all has for them: a request cannot name
// anything else. What one run costs to read holds no question about another one up: the list is given as it was last
// while a thread brings it up to date, for which it reads a bounded part of what is new in all runs.
class RunList {
 public:
  // `paths`: runs, and folders that contain runs, down to kDeepest below them. None: the folder "runs", also if there
  // is none yet.
  explicit RunList(std::vector<std::string> paths);  // throws IoError for a path that is not there

  std::string runs();  // of what has been read so far; each call reads on
  std::vector<Json>
  all();  // the entries of all runs, newest first, read to their end, each with its settings as "config"
  // Nothing for an unknown run or snapshot.
  std::optional<std::string> run(const std::string& id);
  std::optional<std::string> snapshot(const std::string& id, const std::string& name);
  // By run, from a position; without unknown runs, and without the last ones if there would be too much.
  std::string metrics(const std::map<std::string, int64_t>& wanted);

  // All of this at once, for a page without a server. Bounded: of metrics within epochs about kMaxSteps lines of all
  // runs together, and kMaxSnapshots snapshots, at equal distances; of each run its newest one. `comparison`: a table
  // to show with them.
  std::string everything(const Json& comparison = {});

  static constexpr int kDeepest = 3;
  static constexpr size_t kMaxRuns = 1000, kMaxSteps = 5000, kMaxSnapshots = 8;
  static constexpr int64_t kWork = 1 << 19;  // of each call of runs(), as ViewedRun::read counts it

 private:
  using Runs = std::map<std::string, std::shared_ptr<ViewedRun>>;
  void look();
  // Folders by device and number, with the least depth at which they were looked in: links may lead in circles.
  using Seen = std::map<std::pair<uint64_t, uint64_t>, int>;
  void look_in(const std::string& folder, const std::string& id, int depth, std::map<std::string, std::string>& found,
               Seen& seen);
  std::shared_ptr<const ViewedRun> find(const std::string& id);
  Runs known();
  Json list(int64_t work);

  std::vector<std::string> paths_;
  std::string root_;
  std::vector<std::string> first_;  // the runs to begin with
  std::mutex reading_;              // of who brings the list up to date, with look_again_ and last_read_
  std::chrono::steady_clock::time_point look_again_;
  std::string last_read_;  // the run to go on behind, so that none waits for ever
  std::mutex mutex_;       // of the rest, held for a moment only
  Runs runs_;
  std::string list_;  // as it was given last
};

}  // namespace ringtape
