#include "train/run/snapshot_files.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/check.h"
#include "core/device.h"
#include "core/log.h"
#include "train/io/file.h"
#include "train/io/json.h"

namespace ringtape {

SnapshotFiles::~SnapshotFiles() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void SnapshotFiles::add(Snapshot snapshot) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(snapshot));
  if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  changed_.notify_all();
}

void SnapshotFiles::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return waiting_.empty(); });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

// Not with make_folder(): if somebody has moved the run away, it is not made anew.
void SnapshotFiles::add_folder() const {
  const std::string path = run_ + "/" + kSnapshots;
  const bool made = ::mkdir(path.c_str(), 0777) == 0;
  RT_CHECK_AS(IoError, made || errno == EEXIST, path, ": cannot write: ", std::strerror(errno));
  if (made) sync_folder(run_);
}

void SnapshotFiles::work() {
  set_threads(1);  // others are the training's
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ends_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const Snapshot& next = waiting_.front();
    lock.unlock();
    std::exception_ptr error;
    try {
      const std::string path = snapshot_path(run_, snapshot_name(next));
      add_folder();
      write_snapshot(path, next);
      hook_.snapshot(path);
    } catch (const std::exception&) {
      error = std::current_exception();
    }
    lock.lock();
    if (!error_) error_ = error;
    waiting_.pop_front();
    changed_.notify_all();
  }
}

void SnapshotFiles::go_on_from(int64_t epoch) {
  for (const std::string& name : snapshots_in(run_)) {
    const std::string path = snapshot_path(run_, name);
    if (epoch_of_snapshot(name) > epoch) {
      std::error_code error;  // it will be replaced
      std::filesystem::remove(path, error);
      continue;
    }
    try {
      if (hook_.used()) {
        (void)read_snapshot(path);
        hook_.snapshot(path);
      }
    } catch (const Error& e) {
      log_warn("--on-save: not called for ", e.what());
    }
  }
}

}  // namespace ringtape
