#pragma once
#include <string>
#include <vector>

#include "train/loop/world.h"
#include "train/run/run_dir.h"
#include "train/settings/run_setup.h"

// What a training says about itself before it begins.
namespace ringtape::cli {

std::string device_text(Device device);                     // the name of a GPU; of a CPU its instruction set
std::string threads_text(const ExecutionOptions& options);  // "2 threads"

// The first line of the output, printed before the data are read, which may take time.
std::string first_line(const TrainOptions& options);
// The lines after it: data, model, ranks, the run's folder.
std::vector<std::string> introduction(const RunSetup& task, const Trainer& trainer, const World& world,
                                      const RunDir& run);

}  // namespace ringtape::cli
