#pragma once
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

namespace ringtape {

// "NAME" is runs/NAME; a text with a '/' is a path.
std::string run_path(const std::string& run);
// The same; for an empty one makes the folder of a new runs/MODEL-DATA-TIME, so that no other process gets its name.
// Throws IoError.
std::string claim_run_path(const std::string& run, const std::string& model, const std::string& data);

std::string exported_name(bool backbone);  // "backbone.safetensors" or "model.safetensors"

// What to do with an existing run.
enum class Earlier : uint8_t {
  refuse,
  replace,
  resume,
  take_over,  // goes on in place of a process that may still hold it, but has lost the job
};

// Throws UsageError if `path` exists and is not empty, unless it is a finished or interrupted run and `earlier` permits
// replacing or resuming it; IoError if it cannot be read. A run that is still in progress is never touched. Changes
// nothing.
void check_run_path(const std::string& path, Earlier earlier);
// Throws IoError if one of a run's files is a pipe: opening it would wait for ever.
void check_no_pipes(const std::string& path);

// Notes in a run that it is to be replaced, until that happens or the run goes on: for the next attempt of a job,
// should this one fail before. Does nothing if there is no run. Throws IoError.
void note_replacement(const std::string& path);
bool is_to_be_replaced(const std::string& path);

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

// Whether a process trains in this folder now. False if that cannot be found out, as on another machine.
bool is_training(const std::string& path);

// A text file that grows by whole lines, each visible to readers at once. Throws IoError.
class LineFile {
 public:
  // Keeps the first `keep` bytes of an existing file. `alone`: no other process may have it like this; if one has,
  // throws UsageError before it changes anything.
  explicit LineFile(const std::string& path, int64_t keep = 0, bool alone = false);
  void write(const std::string& line);
  int64_t sync();  // flushes it to the disk; returns its length in bytes
  // Throws IoError if the file has lost its name: somebody has moved, removed or replaced it, or its folder.
  void check_in_place() const;

 private:
  std::string path_;
  File file_;
};

// The folder of one run. The constructor takes a lock that other processes see. Unless the run is resumed, it removes
// an earlier run (only the files that a run writes; config.toml last, so that an interrupted removal still counts as a
// run). The lock is on the file .lock, which no log rotation removes and which network file systems can lock too; who
// removes it still meets the lock of metrics.jsonl.
// Throws UsageError as check_run_path does; IoError if the folder cannot be read, before it removes anything, or cannot
// be written.
class RunDir {
 public:
  RunDir(std::string path, Earlier earlier);

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  // A small file records that a checkpoint has been saved, so that lost checkpoints are not taken for a new run.
  void note_checkpoint() const;
  bool has_had_checkpoint() const;
  void log(const std::string& line);  // writes a line to train.log, with the time

 private:
  std::string path_;
  void take_over_files() const;
  File lock_;  // held until the process ends or the object is destroyed
  std::unique_ptr<LineFile> log_;
};

}  // namespace ringtape
