#pragma once
#include <string>

#include "train/loop/task.h"

namespace ringtape {

std::string exported_name(bool backbone);  // of a run's file: backbone.safetensors of a method, else model.safetensors

// What lies beside an exported file of weights: how PyTorch loads it, and what images it
// wants. A backbone is without its last layer.
std::string exported_readme(const Task& task, const std::string& file = "model.safetensors", bool backbone = false);

}  // namespace ringtape
