#pragma once
#include <functional>
#include <string>

#include "train/io/safetensors.h"
#include "train/io/safetensors_header.h"

// A file of weights in any format that is read: safetensors, or PyTorch's own (.pth, .pt, .ckpt). Throws as
// read_safetensors() and PyTorchFile. `set` chooses one of several sets of weights: a member of what PyTorch saved, or
// what the names of tensors begin with before a dot. Throws FormatError if there is none.
namespace ringtape {

// The names, shapes and dtypes of its tensors, and the metadata; where they are in the file has no meaning.
SafetensorsHeader read_weights_header(const std::string& path, const std::string& set = {});

// Reads those tensors for which `wanted` is true, some rows at a time, after `begin` got the header.
void read_weights(const std::string& path, const std::function<void(const SafetensorsHeader&)>& begin,
                  const std::function<bool(const std::string& name)>& wanted,
                  const std::function<void(const TensorEntry&, Part rows, const Tensor& x)>& put,
                  const std::string& set = {});

// Whether write_weights() can write a file of this name: .safetensors, .pth or .pt.
bool is_weights_name(const std::string& path);

// Writes a file in the format of its name.
void write_weights(const std::string& path, const std::vector<NamedTensor>& tensors,
                   const std::map<std::string, std::string>& metadata = {});

}  // namespace ringtape
