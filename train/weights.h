#pragma once
#include <map>
#include <string>

#include "nn/module.h"

namespace ringtape {

// A module's parameters and buffers as a safetensors file, by their dotted names.
void save_weights(const std::string& path, nn::Module& module,
                  const std::map<std::string, std::string>& metadata);

// Copies them into the module. Throws FormatError unless names, shapes and dtypes are exactly the module's.
void load_weights(const std::string& path, nn::Module& module);

}  // namespace ringtape
