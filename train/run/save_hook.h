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

#include "train/checkpoint/checkpoint.h"
#include "train/run/run_dir.h"

namespace ringtape {

inline constexpr const char* kDeliveredFile = ".delivered";  // in a run's folder

// Calls a command of the user's with the path of each checkpoint, snapshot and export that a run has finished, in place
// of {} or as its last argument: in order, one after the other, on a thread of its own, so that the training goes on
// meanwhile. The command is started without a shell, with RINGTAPE_SAVED=checkpoint, snapshot or export and
// RINGTAPE_RUN, the run's folder, in its environment. If it fails or takes longer than the time limit, that is logged,
// and it is called again a few times, and once more at the end.
//
// What it was called for with success is noted in the run (.delivered), so that a resumed run does not repeat it; only
// a call during which the process is killed is repeated, perhaps beside the one that goes on.
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
  void snapshot(const std::string& path) { saved("snapshot", path); }  // from any thread
  void exported(const std::string& path) { saved("export", path); }
  bool has_had(const std::string& path) const;
  // Whether the command has not had it yet, or has failed for it, so that it must not be removed.
  bool needs(const std::string& path) const;
  bool waits() const;  // for anything of these
  // The checkpoints up to this step that an earlier process of the run has written, unless they are damaged.
  void earlier(const Checkpoints& checkpoints, int64_t until, const Course& course);
  // Waits until the command has been called for everything, or until `enough` is true; says what it has not had.
  void finish(const std::function<bool()>& enough, const std::function<void(const std::string&)>& say);

  // Throws UsageError for a command that cannot be started.
  static void check(const std::string& command);

 private:
  struct Saved {
    std::string kind, path, mark;
  };
  void saved(const std::string& kind, const std::string& path);
  void work();
  bool call(const Saved& saved);
  bool delivered(const std::string& path, const std::string& mark) const;  // with mutex_ held
  bool pause(double seconds);                                              // false if this is about to end

  const std::string run_, record_path_;  // the run's folder, and .delivered in it
  const std::vector<std::string> words_;
  const double time_limit_;
  int64_t record_bytes_ = 0;
  std::unique_ptr<LineFile> record_;              // opened when there is something to note
  std::map<std::string, std::string> delivered_;  // the marks by the paths within the run
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Saved> waiting_;  // the first is being delivered
  std::deque<Saved> failed_;
  std::atomic<bool> ends_ = false;
  std::thread thread_;
};

}  // namespace ringtape
