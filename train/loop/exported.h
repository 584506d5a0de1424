#pragma once
#include <string>

#include "train/loop/task.h"

namespace ringtape {

// Python that makes the network, without its weights, as `model`, a torch.nn.Module of images (N, C, H, W); "" if
// nobody has written it for this network. A backbone has no last layer.
std::string exported_python(const Task& task, bool backbone = false);

// The README of an exported file of weights: how to load it in PyTorch, and which images it expects.
std::string exported_readme(const Task& task, const std::string& file = "model.safetensors", bool backbone = false);

}  // namespace ringtape
