#pragma once
#include <string>

#include "train/loop/task.h"

namespace ringtape {

// The README of an exported file of weights: how to load it in PyTorch, and which images it expects. A backbone has no
// last layer.
std::string exported_readme(const Task& task, const std::string& file = "model.safetensors", bool backbone = false);

}  // namespace ringtape
