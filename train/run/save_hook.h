#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "train/run/run_dir.h"

namespace ringtape {

// Calls a command of the user's with the path of each checkpoint and export that a run has finished, in place of the
// word {} or as its last argument: in order, one after the other, on a thread of its own, so that the training goes on
// meanwhile. The command is started without a shell, with RINGTAPE_SAVED=checkpoint or export and RINGTAPE_RUN, the
// run's folder, in its environment. If it fails or takes longer than the time limit, that is logged, and it is called
// again a few times.
//
// What it was called for with success is noted in the run (.delivered), so that a resumed run does not repeat it; only
// a call during which the process is killed is repeated.
class SaveHook {
 public:
  // `command`: words as split_words() finds them; empty: none, and nothing here does anything. Throws UsageError for a
  // program that is not there.
  SaveHook(const RunDir& run, const std::string& command, double time_limit);
  SaveHook(const SaveHook&) = delete;
  SaveHook& operator=(const SaveHook&) = delete;
  ~SaveHook();  // ends a call in progress; nothing else is called

  bool used() const { return !words_.empty(); }  // whether there is a command
  void checkpoint(const std::string& path) { saved("checkpoint", path); }
  void exported(const std::string& path) { saved("export", path); }
  // Whether the command has still to be called for it, and it must not be removed.
  bool needs(const std::string& path) const;
  // Waits until the command has been called for everything, or until `enough` is true. Returns the paths for which it
  // has failed or has not been called.
  std::vector<std::string> finish(const std::function<bool()>& enough);

  // Throws UsageError for a command that cannot be started.
  static void check(const std::string& command);

 private:
  struct Saved {
    std::string kind, path, mark;
  };
  void saved(const std::string& kind, const std::string& path);
  void work();
  bool call(const Saved& saved);
  bool pause(double seconds);  // false if this is about to end

  const std::string run_, record_path_;  // the run's folder, and .delivered in it
  const std::vector<std::string> words_;
  const double time_limit_;
  int64_t record_bytes_ = 0;
  std::unique_ptr<LineFile> record_;              // opened when there is something to note
  std::map<std::string, std::string> delivered_;  // the marks by the paths within the run
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Saved> waiting_;  // the first is being delivered
  std::vector<std::string> failed_;
  std::atomic<bool> ends_ = false;
  std::thread thread_;
};

}  // namespace ringtape
