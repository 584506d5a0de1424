#pragma once
#include <functional>

#include "train/checkpoint/state.h"
#include "train/io/safetensors.h"

// A checkpoint is a folder, step-00000120:
//   model.safetensors      the weights, as an exported model's file
//   optimizer.safetensors  what the optimization holds besides them
//   ema.safetensors        with --ema, the averaged weights
//   state.json             the TrainState, and length and CRC-32 of the files and of itself
// It is written below another name, put on the disk and renamed: it is there complete or not at all.
namespace ringtape {

// A file of tensors: views, to be written or to be read into.
struct TensorFile {
  std::string name;
  std::vector<NamedTensor> tensors;
  std::map<std::string, std::string> metadata = {};
};

// `settings` stands for all that a continuation must have in common with the training. Throws IoError.
void write_checkpoint(const std::string& path, const TrainState& state, const std::vector<TensorFile>& files,
                      const std::string& settings);

// The state in a checkpoint. Throws IoError or FormatError, with the reason, unless every file is as it was written, and UsageError
// for one of other settings.
TrainState check_checkpoint(const std::string& path, const std::string& settings);

// The checkpoints of a run, below a folder of their own. Kept are the newest `keep` and the one of the best validation; the
// links `last` and `best` lead to them.
class Checkpoints {
 public:
  Checkpoints(std::string folder, int64_t keep) : folder_(std::move(folder)), keep_(keep) {}

  // Commits one named by its step; then removes what is no longer kept. Returns its path.
  std::string save(const TrainState& state, const std::vector<TensorFile>& files, const std::string& settings) const;

  // The newest one that is whole; `damaged` hears of each that is not. Nothing if there is none.
  struct Found {
    std::string path;
    TrainState state;
  };
  std::optional<Found> newest(const std::string& settings, const std::function<void(const std::string&)>& damaged) const;

  std::string path_of(int64_t step) const;  // of the one that is named by this step

  // Reads tensors from a checkpoint that has been checked.
  static void load(const std::string& path, const std::vector<TensorFile>& files);

 private:
  std::vector<std::string> names() const;  // newest first
  void link(const std::string& name, const std::string& to) const;

  std::string folder_;
  int64_t keep_;
};

}  // namespace ringtape
