#pragma once
#include <optional>
#include <string>

#include "train/cli/command.h"
#include "train/io/safetensors_header.h"
#include "train/settings/given.h"
#include "train/settings/run_setup.h"

// Shared by the commands that load trained weights.
namespace ringtape::cli {

// The settings of trained weights with the flags applied, but for what their run began with and learnt by, its machine,
// and the limit of its tests: here all images are tested.
TrainOptions options_of(const Invocation& invocation, Given settings);

struct Trained {
  std::string command;            // the command's name
  std::string weights;            // path of the file,
  std::string set = {};           // and which weights in it; see read_weights
  TrainOptions options;           // the run's options, adapted to this machine, with the flags applied
  TrainedOn data;                 // what the file says about its data
  EvaluationOptions judged = {};  // how the run tested its features
  SafetensorsHeader header = {};
  bool train = true, test = true;  // which images are needed
  bool new_images = false;         // whether flags say how other images are read

  // The Beginning of the setup that loads the weights: its images are normalised as in the training unless --normalize
  // was given, and the network is checked against the file's tensors before it is created.
  Beginning beginning() const;
  // The same with this one in place of the training images, for a command that needs only what they were like.
  Beginning beginning_with(const Dataset& images) const;
  void check_first(const ModelSpec& spec, bool image_known) const;  // check_first_weight()
};

// Finds the command's only argument: a run, a checkpoint or a file, of which --weights-key may choose one set. Throws
// UsageError without an argument, IoError if it does not exist, FormatError if the tensors do not have the sizes that
// the settings say.
Trained find_trained(const Invocation& invocation, const std::string& command);

// One image, without content, that stands for those of the training: as a file of this project says, or as the tensors
// of another program's show: the number of classes by its last layer, 0 if it has none; by its first convolution the
// channels of the images, and for which of two usual sizes they are. Nothing if the file does not say, or flags name
// other images.
std::optional<Dataset> image_in_file(const Trained& trained);

// Loads the file's weights into the task's model. With `features`, the last layer may be absent from the file or have
// other classes. Throws Error for weights that are not finite.
void load_trained(const Trained& trained, const Task& task, bool features = false);

// Throws, before a command begins its work, if it could not write `path`, the value of `flag`, or would overwrite the
// weights that it reads: IoError, UsageError.
void check_output(const Trained& trained, const char* flag, const std::string& path);

}  // namespace ringtape::cli
