#pragma once
#include <string>

#include "train/cli/command.h"
#include "train/io/safetensors_header.h"
#include "train/loop/task.h"

// What the commands share that begin with trained weights.
namespace ringtape::cli {

struct Trained {
  std::string command;   // that asks for them
  std::string weights;   // the file
  TrainOptions options;  // that it was trained with, for this machine, as the flags change them
  TrainedOn data;        // as far as the file says
  SafetensorsHeader header = {};
  bool train = true, test = true;  // which images are needed

  // For the task that takes the weights: its images are normalised as those of the training, unless --normalize was
  // given, and no network is made that the file's tensors do not fit.
  Beginning beginning() const;
};

// Of the command's one argument: a run, a checkpoint or a file. Throws UsageError without one, IoError where there is
// nothing of that name, FormatError where the file's tensors are not of the size that its settings say.
Trained find_trained(const Invocation& invocation, const std::string& command);

// The file's weights into the task's model; with `features`, the file may lack the last layer or have one of other
// classes. Throws Error for weights that are not finite.
void load_trained(const Trained& trained, const Task& task, bool features = false);

// Throws Error, beginning with `what`, unless all of a tensor's numbers are finite.
void check_finite(const std::string& what, const Tensor& x);

}  // namespace ringtape::cli
