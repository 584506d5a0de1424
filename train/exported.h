#pragma once
#include <string>

#include "train/trainer.h"

namespace ringtape {

// What lies beside an exported model.safetensors: how PyTorch loads it, and what images it wants.
std::string exported_readme(const Task& task);

}  // namespace ringtape
