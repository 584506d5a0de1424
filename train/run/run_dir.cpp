#include "train/run/run_dir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "core/check.h"
#include "core/limits.h"
#include "core/printable.h"
#include "train/checkpoint/checkpoint.h"
#include "train/evaluation/snapshot.h"
#include "train/io/file.h"
#include "train/io/look.h"
#include "train/run/save_hook.h"
#include "train/run/time_text.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;

// The files that a run writes, besides checkpoints, and train.log and the lock, which are kept. Nothing else is ever
// removed.
constexpr const char *kLock = ".lock", *kLog = "train.log", *kConfig = "config.toml", *kMetrics = "metrics.jsonl";
constexpr const char *kCheckpoints = "checkpoints", *kExported = "exported";
constexpr const char *kSaved = ".saved", *kReplace = ".replace";
constexpr int kLockTries = 200;  // two seconds:
constexpr std::chrono::milliseconds kLockPause(10);
constexpr int kDescriptors = 12;  // that a training needs at least
constexpr std::array kOwned = {
    kSaved,   kDeliveredFile, "env.json",    "data.json",  "data-files.tsv", "data-contents.safetensors",
    kMetrics, "metrics.csv",  "report.html", "trace.json", kConfig,          kReplace};
constexpr const char
    *kTraining = ": another process is training there; choose another --run",
    *kHoldsARun =
        ": holds an earlier run; continue it with --resume, replace it with --overwrite or choose another --run";

bool taken(const std::string& path) {
  const fs::file_type type = type_at(path);
  return type != fs::file_type::not_found && !(type == fs::file_type::directory && names_in(path).empty());
}

bool locked(const fs::path& file) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe of that name is not waited for
  if (fd < 0) return false;
  const bool held = ::flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(fd);
  return held;
}

// Whether it is not given back within a second: a process that was killed holds it until the system has ended it.
bool stays_locked(const fs::path& file) {
  for (int i = 0; i < kLockTries / 2; ++i) {
    if (!locked(file)) return false;
    std::this_thread::sleep_for(kLockPause);
  }
  return true;
}

// A run that was interrupted before it wrote config.toml: replacing it loses nothing.
bool just_begun(const fs::path& path) {
  bool has_mark = false, has_more = false;
  for (const std::string& name : names_in(path)) {
    const bool empty_folder = name == kExported && names_in(path / name).empty(),
               mark = name == kLock || name == kLog || name == kReplace;
    has_mark = has_mark || mark;
    has_more = has_more || !(mark || is_temporary_name(name) || empty_folder);
  }
  return has_mark && !has_more;
}

void remove_run(const fs::path& path) {
  const std::vector<std::string> names = names_in(path);
  Checkpoints(path / kCheckpoints, 0).remove_all();
  for (const std::string& name : names)
    if (name.starts_with("events.out.tfevents.")) fs::remove(path / name);
  const fs::path exported = path / kExported;
  for (const std::string& name : {exported_name(false), exported_name(true), std::string("README.md")})
    fs::remove(exported / name);
  for (const std::string& name : snapshots_in(path)) fs::remove(snapshot_path(path, name));
  std::error_code error;
  for (const fs::path& folder : {exported, path / kSnapshots})
    fs::remove(folder, error);  // unless others' files are in it
  for (const char* name : kOwned) fs::remove(path / name);
}

// Removes the temporary files of a killed process.
void remove_leftovers(const fs::path& run) {
  std::vector<fs::path> leftovers;
  for (const fs::path& folder : {run, run / kExported, run / kCheckpoints, run / kSnapshots})
    for (const std::string& name : names_in(folder))
      if (is_temporary_name(name)) leftovers.push_back(folder / name);
  std::error_code error;  // ignored: they disturb nothing
  for (const fs::path& path : leftovers) fs::remove_all(path, error);
}

File locked_file(const std::string& run, const std::string& path) {
  File out(std::fopen(path.c_str(), "ae"));
  RT_CHECK_AS(IoError, out, path, ": cannot write: ", std::strerror(errno));
  bool held = false;
  for (int i = 0; i < kLockTries && !held; ++i) {  // who looks at it holds it for a moment
    if (i > 0) std::this_thread::sleep_for(kLockPause);
    held = ::flock(::fileno(out.get()), LOCK_EX | LOCK_NB) == 0;
    if (!held && errno != EWOULDBLOCK) break;
  }
  RT_CHECK_AS(UsageError, held || errno != EWOULDBLOCK, "--run ", run, kTraining);
  RT_CHECK_AS(UsageError, held, "--run ", run, ": cannot lock ", path, ": ", std::strerror(errno),
              "; choose another --run");
  return out;
}

}  // namespace

std::string run_path(const std::string& run) {
  if (run.find('/') == std::string::npos) return "runs/" + run;
  return run.substr(0, std::max<size_t>(run.find_last_not_of('/') + 1, 1));
}

std::string claim_run_path(const std::string& run, const std::string& model, const std::string& data) {
  if (!run.empty()) return run_path(run);
  make_folder("runs");
  const std::string base = concat("runs/", model, "-", data, "-", local_time_text("%Y%m%d-%H%M%S"));
  for (int i = 1;; ++i) {
    const std::string path = i == 1 ? base : concat(base, "-", i);
    if (::mkdir(path.c_str(), 0777) == 0) return path;
    RT_CHECK_AS(IoError, errno == EEXIST, path, ": cannot write: ", std::strerror(errno));
  }
}

std::string exported_name(bool backbone) { return backbone ? "backbone.safetensors" : "model.safetensors"; }

void check_no_pipes(const std::string& path) {
  const auto check = [&](const char* name) {
    const std::string file = concat(path, "/", name);
    std::error_code unknown;
    RT_CHECK_AS(IoError, !fs::is_fifo(file, unknown), file, ": is a pipe, which nobody may write or read; remove it");
  };
  for (const char* name : {kLock, kLog}) check(name);
  for (const char* name : kOwned) check(name);
}

void check_run_path(const std::string& path, Earlier earlier) {
  if (!taken(path)) return;
  check_no_pipes(path);
  RT_CHECK_AS(UsageError, is_folder_at(path), "--run ", path, ": a file has that name; choose another --run");
  const bool is_run = is_there(concat(path, "/", kConfig)), begun = just_begun(path);
  RT_CHECK_AS(UsageError, is_run || begun, "--run ", path, ": the folder is not a run; choose another --run");
  for (const char* name : {kLock, kMetrics})
    RT_CHECK_AS(UsageError, !stays_locked(fs::path(path) / name), "--run ", path, kTraining);
  RT_CHECK_AS(UsageError, begun || earlier != Earlier::refuse, "--run ", path, kHoldsARun);
}

void note_replacement(const std::string& path) {
  if (is_there(concat(path, "/", kConfig)))
    write_file(concat(path, "/", kReplace), "This run is replaced as soon as the next training begins.\n");
}

bool is_to_be_replaced(const std::string& path) { return is_there(concat(path, "/", kReplace)); }

bool is_training(const std::string& path) { return locked(fs::path(path) / kLock); }

LineFile::LineFile(const std::string& path, int64_t keep, bool alone)
    : path_(path), file_(std::fopen(path.c_str(), "ae")) {
  const bool held = file_ && alone && ::flock(::fileno(file_.get()), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  RT_CHECK_AS(UsageError, !held, path, ": another process writes it; choose another --run");
  struct stat now {};
  const bool ready = file_ && ::fstat(::fileno(file_.get()), &now) == 0 &&
                     (now.st_size <= keep || ::ftruncate(::fileno(file_.get()), keep) == 0);
  RT_CHECK_AS(IoError, ready, path, ": cannot write: ", std::strerror(errno));
}

void LineFile::write(const std::string& line) {
  const std::string whole = line + '\n';  // in one call: other threads write lines, too
  const bool written =
      std::fwrite(whole.data(), 1, whole.size(), file_.get()) == whole.size() && std::fflush(file_.get()) == 0;
  RT_CHECK_AS(IoError, written, path_, ": cannot write: ", std::strerror(errno));
}

int64_t LineFile::sync() {
  struct stat now {};
  const bool done = ::fdatasync(::fileno(file_.get())) == 0 && ::fstat(::fileno(file_.get()), &now) == 0;
  RT_CHECK_AS(IoError, done, path_, ": cannot write: ", std::strerror(errno));
  return now.st_size;
}

void LineFile::check_in_place() const {
  struct stat own {
  }, named{};
  if (::fstat(::fileno(file_.get()), &own) != 0) return;
  const bool there = ::stat(path_.c_str(), &named) == 0;
  if (!there && errno != ENOENT && errno != ENOTDIR) return;  // unknown
  RT_CHECK_AS(IoError, there && own.st_dev == named.st_dev && own.st_ino == named.st_ino, path_,
              ": somebody has moved, removed or replaced it during the training, which ends here; bring it back and "
              "continue with --resume");
}

// Whoever still has the old files open writes to files without a name, or finds that they have lost it.
void RunDir::take_over_files() const {
  for (const char* name : {kLock, kLog})
    if (is_there(file(name))) write_file(file(name), read_file(file(name)));
}

RunDir::RunDir(std::string path, Earlier earlier) : path_(std::move(path)) {
  const bool takes_over = earlier == Earlier::take_over, goes_on = earlier == Earlier::resume || takes_over;
  if (!takes_over) check_run_path(path_, earlier);
  try {
    make_folder(path_);
    if (takes_over) take_over_files();
    lock_ = locked_file(path_, file(kLock));
    RT_CHECK_AS(UsageError, takes_over || !stays_locked(file(kMetrics)), "--run ", path_, kTraining);
    RT_CHECK_AS(UsageError, earlier != Earlier::refuse || !is_there(file(kConfig)), "--run ", path_, kHoldsARun);
    if (earlier == Earlier::replace) {
      const std::string lack = lack_of_descriptors(kDescriptors);
      RT_CHECK_AS(IoError, lack.empty(), "--run ", path_, ": not replaced: ", lack);
    }
    if (goes_on) fs::remove(file(kReplace));
    else remove_run(path_);
    remove_leftovers(path_);
    make_folder(file(kExported));
  } catch (const fs::filesystem_error& e) {
    detail::fail<IoError>({"--run ", path_, ": cannot write: ", e.code().message()});
  }
  log_ = std::make_unique<LineFile>(file(kLog), goes_on ? INT64_MAX : 0);
}

void RunDir::note_checkpoint() const {
  if (!has_had_checkpoint())
    write_file(file(kSaved), "This run has saved a checkpoint: without one, --resume does not begin anew.\n");
}

bool RunDir::has_had_checkpoint() const { return is_there(file(kSaved)); }

void RunDir::log(const std::string& line) { log_->write(local_time_text("%F %T ") + printable(line, "\n  ")); }

}  // namespace ringtape
