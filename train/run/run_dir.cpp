#include "train/run/run_dir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "core/check.h"
#include "train/run/time_text.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;

// What a run writes, besides train.log, which holds its lock; nothing else is ever removed.
constexpr std::array<const char*, 7> kOwned = {"env.json", "metrics.jsonl", "metrics.csv", "checkpoints",
                                               "exported", "report.html",   "config.toml"};
constexpr const char *kTraining = ": another process is training there; choose another --run",
                     *kHoldsARun =
                         ": holds an earlier run; replace it with --overwrite or choose another --run";

bool taken(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error) && !(fs::is_directory(path, error) && fs::is_empty(path, error));
}

bool locked(const fs::path& log) {
  const int fd = ::open(log.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool held = ::flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(fd);
  return held;
}

void remove_run(const fs::path& path) {
  for (const auto& entry : fs::directory_iterator(path))
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) fs::remove(entry.path());
  for (const char* name : kOwned) fs::remove_all(path / name);
}

// Opened as it is: until the lock is ours, what it holds is another's.
File locked_file(const std::string& run, const std::string& path) {
  File out(std::fopen(path.c_str(), "ae"));
  RT_CHECK_AS(IoError, out, path, ": cannot write: ", std::strerror(errno));
  const bool held = ::flock(::fileno(out.get()), LOCK_EX | LOCK_NB) == 0;
  RT_CHECK_AS(UsageError, held || errno != EWOULDBLOCK, "--run ", run, kTraining);
  RT_CHECK_AS(UsageError, held, "--run ", run, ": cannot lock ", path, ": ", std::strerror(errno),
              "; choose another --run");
  return out;
}

}  // namespace

std::string run_path(const std::string& run, const std::string& model, const std::string& data) {
  if (run.find('/') != std::string::npos)
    return run.substr(0, std::max<size_t>(run.find_last_not_of('/') + 1, 1));
  if (!run.empty()) return "runs/" + run;
  const std::string base = "runs/" + model + "-" + data + "-" + local_time_text("%Y%m%d-%H%M%S");
  std::string path = base;
  for (int i = 2; taken(path); ++i) path = base + "-" + std::to_string(i);
  return path;
}

void check_run_path(const std::string& path, bool overwrite) {
  if (!taken(path)) return;
  RT_CHECK_AS(UsageError, fs::is_directory(path), "--run ", path,
              ": there is a file of that name; choose another --run");
  const bool is_run = fs::exists(fs::path(path) / "config.toml");
  RT_CHECK_AS(UsageError, is_run, "--run ", path,
              ": the folder holds other things than a run; choose another --run");
  RT_CHECK_AS(UsageError, !locked(fs::path(path) / "train.log"), "--run ", path, kTraining);
  RT_CHECK_AS(UsageError, overwrite, "--run ", path, kHoldsARun);
}

LineFile::LineFile(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "we")) {
  RT_CHECK_AS(IoError, file_, path, ": cannot write: ", std::strerror(errno));
}

void LineFile::write(const std::string& line) {
  const bool written = std::fwrite(line.data(), 1, line.size(), file_.get()) == line.size() &&
                       std::fputc('\n', file_.get()) != EOF && std::fflush(file_.get()) == 0;
  RT_CHECK_AS(IoError, written, path_, ": cannot write: ", std::strerror(errno));
}

RunDir::RunDir(std::string path, bool overwrite) : path_(std::move(path)) {
  check_run_path(path_, overwrite);
  try {
    fs::create_directories(path_);
    lock_ = locked_file(path_, file("train.log"));
    RT_CHECK_AS(UsageError, overwrite || !fs::exists(file("config.toml")), "--run ", path_, kHoldsARun);
    remove_run(path_);
    fs::create_directories(file("exported"));
  } catch (const fs::filesystem_error& e) {
    detail::fail<IoError>("--run ", path_, ": cannot write: ", e.code().message());
  }
  log_ = std::make_unique<LineFile>(file("train.log"));
}

void RunDir::log(const std::string& line) { log_->write(local_time_text("%F %T ") + line); }

}  // namespace ringtape
