#pragma once
#include <string>

#include "train/trainer.h"

namespace ringtape {

std::string exported_name(const Task& task);  // of the file: model.safetensors, or backbone.safetensors of a method

// What lies beside it: how PyTorch loads it, and what images it wants.
std::string exported_readme(const Task& task);

}  // namespace ringtape
