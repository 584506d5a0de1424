#pragma once
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

namespace ringtape {

// "NAME" is runs/NAME; what has a '/' is a path; empty gives runs/MODEL-DATA-TIME, not yet there.
std::string run_path(const std::string& run, const std::string& model, const std::string& data);

// What becomes of a run that is there already.
enum class Earlier : uint8_t { refuse, replace, resume };

// Throws UsageError if `path` has anything in it, unless it is a finished or broken-off run which `earlier`
// allows to replace or to continue; a run that is still going is never touched. Changes nothing.
void check_run_path(const std::string& path, Earlier earlier);

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

// A text file that grows by whole lines, each visible to readers at once. Throws IoError.
class LineFile {
 public:
  explicit LineFile(const std::string& path, int64_t keep = 0);  // of what it holds, the first `keep` bytes stay
  void write(const std::string& line);
  int64_t sync();  // puts it on the disk; its length in bytes

 private:
  std::string path_;
  File file_;
};

// The folder of one training run. Creating it takes a lock that other processes see and, unless that is to be
// continued, clears an earlier run away (only what a run writes; its config.toml last, so that what is left still
// counts as a run). The lock is on .lock, which nobody has reason to rotate or remove, and which network file systems
// can lock too. Throws UsageError as check_run_path does, IoError if it cannot be written.
class RunDir {
 public:
  RunDir(std::string path, Earlier earlier);

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  void log(const std::string& line);  // a line of train.log, with the time

 private:
  std::string path_;
  File lock_;  // until the process ends or the object goes
  std::unique_ptr<LineFile> log_;
};

}  // namespace ringtape
