#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "train/checkpoint/state.h"
#include "train/data/identity.h"
#include "train/io/safetensors.h"

// A checkpoint is a folder, step-00000120:
//   model.safetensors      the weights, as an exported model's file
//   optimizer.safetensors  the rest of the optimization's state
//   ema.safetensors        with --ema, the averaged weights
//   state.json             the TrainState, the settings, the data set's identity; length and CRC-32 of each file and of
//                          itself
// It is written under a temporary name, flushed to the disk and renamed: it is complete or does not exist.
namespace ringtape {

// A file of tensors, to write or to read into.
struct TensorFile {
  std::string name;
  std::vector<FileTensor> tensors;
  std::map<std::string, std::string> metadata = {};
};

// What a run must have in common with its checkpoints.
struct Course {
  using Texts = std::map<std::string, std::string>;
  Texts settings = {};  // those that must not change, by name
  // The settings that are not as before, a line each; null: they are not compared.
  std::function<std::vector<std::string>(const Texts& before)> changed = {};
  DataIdentity data = {};
  int64_t steps_per_epoch = 0;
  std::vector<std::string> files = {};  // names of the files of tensors
};

// Throws IoError. `check`: called before the checkpoint gets its name.
void write_checkpoint(const std::string& path, const TrainState& state, const std::vector<TensorFile>& files,
                      const Course& course, const std::function<void()>& check = {});

// Reads the state of a checkpoint and checks its files. Throws FormatError, with the reason, unless it is a checkpoint
// of `step` and every file is there, as it was written; IoError if one cannot be read; UsageError if it has other
// settings or another data set (naming both) or was written by a newer ringtape.
TrainState check_checkpoint(const std::string& path, int64_t step, const Course& course);

// The checkpoints of a run, in one folder. A subfolder counts as a checkpoint if it has a checkpoint's name and its
// state.json says the same step or is damaged. Nothing else in the folder is used, renamed or removed, unless it has
// the name that a new checkpoint needs. The newest `keep` checkpoints and the one of the best validation are kept; the
// links `last` and `best` point to them.
class Checkpoints {
 public:
  // `needed`: whether a checkpoint, by its path, must not be removed yet although it is an old one. `check` is called
  // before save() changes what is there, and throws if the run is not this process's any more.
  Checkpoints(std::string folder, int64_t keep, std::function<bool(const std::string&)> needed = {},
              std::function<void()> check = {})
      : folder_(std::move(folder)), keep_(keep), needed_(std::move(needed)), check_(std::move(check)) {}

  // Writes a checkpoint named by its step, then removes those that are no longer kept. Checkpoints of later steps,
  // which a training resumed from an earlier one has left behind, are renamed to aside-step-..., with a line in the
  // log; the next save() removes them. Returns the new path. Throws IoError before anything is removed, also if the
  // folder cannot be read.
  std::string save(const TrainState& state, const std::vector<TensorFile>& files, const Course& course) const;

  // The newest checkpoint that is complete; `unusable` gets the reason for each that is not. Returns nothing if there
  // is no checkpoint. Throws FormatError if there are files of checkpoints but no complete one; IoError if the folder
  // or a checkpoint that may be complete cannot be read, or if only the links to checkpoints are left; UsageError as
  // check_checkpoint(). Changes nothing.
  struct Found {
    std::string path;
    TrainState state;
  };
  std::optional<Found> newest(const Course& course, const std::function<void(const std::string&)>& unusable) const;

  // Updates the links and removes checkpoints that are no longer kept, as after a save(): a killed process may have
  // left this undone. Throws IoError before anything changes if the folder cannot be read.
  void settle(const TrainState& newest) const;

  // Removes all checkpoints, for a run that is replaced; also the folder, if nothing else is in it. Throws as settle().
  void remove_all() const;

  std::string path_of(int64_t step) const;               // of the checkpoint of this step
  std::vector<int64_t> steps_until(int64_t step) const;  // of the checkpoints up to this step, oldest first

  // Reads tensors from a checkpoint that has been checked.
  static void load(const std::string& path, const std::vector<TensorFile>& files);

 private:
  // Steps of the checkpoints, newest first. `all`: of every folder with such a name.
  std::vector<int64_t> steps(const char* prefix, bool all = false) const;
  std::string path_of(const char* prefix, int64_t step) const;
  void set_aside(int64_t step) const;
  void link(const std::string& name, int64_t step) const;

  std::string folder_;
  int64_t keep_;
  std::function<bool(const std::string&)> needed_;
  std::function<void()> check_;
};

}  // namespace ringtape
