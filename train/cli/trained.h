#pragma once
#include <string>

#include "train/cli/command.h"
#include "train/io/safetensors_header.h"
#include "train/settings/run_setup.h"

// Shared by the commands that load trained weights.
namespace ringtape::cli {

struct Trained {
  std::string command;   // the command's name
  std::string weights;   // path of the file
  TrainOptions options;  // the run's options, adapted to this machine, with the flags applied
  TrainedOn data;        // what the file says about its data
  SafetensorsHeader header = {};
  bool train = true, test = true;  // which images are needed
  int64_t classes = 0;             // of another program's file, by the rows of its last layer; 0: unknown

  // The Beginning of the setup that loads the weights: its images are normalised as in the training unless --normalize
  // was given, and the network is checked against the file's tensors before it is created.
  Beginning beginning() const;
  // The same without images, for a command that needs only their shape: from a file of another program, it and the
  // number of classes are those that its tensors show, unless a flag names a data set.
  Beginning beginning_without_images(const Invocation& invocation) const;
};

// Finds the command's only argument: a run, a checkpoint or a file. Throws UsageError without an argument, IoError if
// it does not exist, FormatError if the tensors do not have the sizes that the settings say.
Trained find_trained(const Invocation& invocation, const std::string& command);

// Loads the file's weights into the task's model. With `features`, the last layer may be absent from the file or have
// other classes. Throws Error for weights that are not finite.
void load_trained(const Trained& trained, const Task& task, bool features = false);

// Throws, before a command begins its work, if it could not write `path`, the value of `flag`, or would overwrite the
// weights that it reads: IoError, UsageError.
void check_output(const Trained& trained, const char* flag, const std::string& path);

}  // namespace ringtape::cli
