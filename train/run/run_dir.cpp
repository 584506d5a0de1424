#include "train/run/run_dir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "core/check.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;

// What a run writes; nothing else is ever removed.
constexpr std::array<const char*, 8> kOwned = {"config.toml", "env.json",    "train.log", "metrics.jsonl",
                                               "metrics.csv", "checkpoints", "exported",  "report.html"};

std::string time_text(const char* format) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char out[32];
  std::strftime(out, sizeof out, format, &local);
  return out;
}

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
  for (const char* name : kOwned) fs::remove_all(path / name);
  for (const auto& entry : fs::directory_iterator(path))
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) fs::remove(entry.path());
}

}  // namespace

std::string run_path(const std::string& run, const std::string& model, const std::string& data) {
  if (run.find('/') != std::string::npos) return run.back() == '/' ? run.substr(0, run.size() - 1) : run;
  if (!run.empty()) return "runs/" + run;
  const std::string base = "runs/" + model + "-" + data + "-" + time_text("%Y%m%d-%H%M%S");
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
  RT_CHECK_AS(UsageError, !locked(fs::path(path) / "train.log"), "--run ", path,
              ": another process is training there; choose another --run");
  RT_CHECK_AS(UsageError, overwrite, "--run ", path,
              ": holds an earlier run; replace it with --overwrite or choose another --run");
}

LineFile::LineFile(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "we")) {
  RT_CHECK_AS(IoError, file_, path, ": cannot write: ", std::strerror(errno));
}

void LineFile::write(const std::string& line) {
  const bool written = std::fwrite(line.data(), 1, line.size(), file_.get()) == line.size() &&
                       std::fputc('\n', file_.get()) != EOF && std::fflush(file_.get()) == 0;
  RT_CHECK_AS(IoError, written, path_, ": cannot write: ", std::strerror(errno));
}

int LineFile::descriptor() const { return ::fileno(file_.get()); }

RunDir::RunDir(std::string path, bool overwrite) : path_(std::move(path)) {
  check_run_path(path_, overwrite);
  try {
    fs::create_directories(path_);
    remove_run(path_);
    fs::create_directories(file("exported"));
  } catch (const fs::filesystem_error& e) {
    detail::fail<IoError>("--run ", path_, ": cannot write: ", e.code().message());
  }
  log_ = std::make_unique<LineFile>(file("train.log"));
  ::flock(log_->descriptor(), LOCK_EX | LOCK_NB);  // held until the process ends or the object goes
}

void RunDir::log(const std::string& line) { log_->write(time_text("%F %T ") + line); }

}  // namespace ringtape
