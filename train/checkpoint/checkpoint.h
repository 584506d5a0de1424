#pragma once
#include <functional>

#include "train/checkpoint/state.h"
#include "train/data/identity.h"
#include "train/io/safetensors.h"
#include "train/settings/options.h"

// A checkpoint is a folder, step-00000120:
//   model.safetensors      the weights, as an exported model's file
//   optimizer.safetensors  what the optimization holds besides them
//   ema.safetensors        with --ema, the averaged weights
//   state.json             the TrainState, the settings and the data set, and length and CRC-32 of the files and of
//                          itself
// It is written below another name, put on the disk and renamed: it is there complete or not at all.
namespace ringtape {

// A file of tensors: views, to be written or to be read into.
struct TensorFile {
  std::string name;
  std::vector<NamedTensor> tensors;
  std::map<std::string, std::string> metadata = {};
};

// What a training has in common with all its checkpoints.
struct Course {
  TrainOptions options;
  DataIdentity data;
  int64_t steps_per_epoch = 0;
  std::vector<std::string> files;  // names of the TensorFiles
};

// Throws IoError.
void write_checkpoint(const std::string& path, const TrainState& state, const std::vector<TensorFile>& files,
                      const Course& course);

// The state in a checkpoint. Throws IoError or FormatError, with the reason, unless it is one of
// `step` and every file is as it was written, and UsageError for one of other settings or of
// another data set, naming both, or of a newer ringtape.
TrainState check_checkpoint(const std::string& path, int64_t step, const Course& course);

// The checkpoints of a run, below a folder of their own: folders of a checkpoint's name whose
// state.json says the same step, or is damaged. Nothing else there is ever used, renamed or
// removed, unless it has the very name that a checkpoint is to get. Kept are the newest `keep` and
// the one of the best validation; the links `last` and `best` lead to them.
class Checkpoints {
 public:
  Checkpoints(std::string folder, int64_t keep) : folder_(std::move(folder)), keep_(keep) {}

  // Commits one named by its step; then removes what is no longer kept. Those of later steps, which the training went
  // back behind, become aside-step-... and go with the save after that; the log tells. Returns its path. Throws
  // IoError, before anything is removed.
  std::string save(const TrainState& state, const std::vector<TensorFile>& files, const Course& course) const;

  // The newest one that is whole; `unusable` hears of each that is not. Nothing if there is no checkpoint; FormatError
  // if there are some files of one, and none is whole. Throws UsageError as check_checkpoint.
  struct Found {
    std::string path;
    TrainState state;
  };
  std::optional<Found> newest(const Course& course, const std::function<void(const std::string&)>& unusable) const;

  // Makes links and what is kept as they are after a save, whatever a process that was killed has left undone.
  void settle(const TrainState& newest) const;

  // Of a run that is replaced; the folder too, if nothing else is in it.
  void remove_all() const;

  std::string path_of(int64_t step) const;  // of the one that is named by this step

  // Reads tensors from a checkpoint that has been checked.
  static void load(const std::string& path, const std::vector<TensorFile>& files);

 private:
  // Newest first; all: of every folder of such a name.
  std::vector<int64_t> steps(const char* prefix, bool all = false) const;
  std::string path_of(const char* prefix, int64_t step) const;
  void set_aside(int64_t step) const;
  void link(const std::string& name, int64_t step) const;

  std::string folder_;
  int64_t keep_;
};

}  // namespace ringtape
