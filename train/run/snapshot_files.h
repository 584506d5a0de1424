#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <string>
#include <thread>

#include "train/evaluation/snapshot.h"
#include "train/run/run_dir.h"
#include "train/run/save_hook.h"

namespace ringtape {

// The snapshots of a run, in its folder snapshots/. They are written on a thread of its own, so that no step waits for
// the disk. A checkpoint is saved after finish(): then those up to its epoch are there, whatever happens next.
class SnapshotFiles {
 public:
  SnapshotFiles(const RunDir& run, SaveHook& hook) : run_(run.path()), hook_(hook) {}
  ~SnapshotFiles();  // waits, too
  SnapshotFiles(const SnapshotFiles&) = delete;
  SnapshotFiles& operator=(const SnapshotFiles&) = delete;

  void add(Snapshot snapshot);
  void finish();  // waits until all are written; throws IoError if one could not be
  // Of the snapshots of an earlier process of the run: those behind this epoch, from which it goes on, are removed; the
  // hook gets the others.
  void go_on_from(int64_t epoch);

 private:
  void add_folder() const;
  void work();

  const std::string run_;
  SaveHook& hook_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Snapshot> waiting_;  // the first is being written
  std::exception_ptr error_;      // the first one
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace ringtape
