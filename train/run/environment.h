#pragma once
#include <string>
#include <vector>

#include "train/io/json.h"

namespace ringtape {

// What a result depends on besides the options: version, machine, compiler, libraries, and the environment variables
// that are set.
Json environment(const std::vector<std::string>& command_line);

// Of a build with CUDA: the names and versions of its runtime, driver and libraries, "own kernels" or "none" for a
// library that is not used. Otherwise empty.
Json cuda_libraries();
std::string cuda_versions();  // the same as "CUDA 13.0, CUDA driver 13.0 (580.65.06), cuBLASLt 13.1, ..."

}  // namespace ringtape
