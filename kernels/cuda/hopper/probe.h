#pragma once
#include <string>

#include "core/device.h"

namespace ringtape::cuda {

// Asks a GPU of compute capability 9.0 what its descriptors and boxes mean, which the manual says and only the GPU
// knows: what it does otherwise than our kernels expect; empty if nothing.
std::string hopper_surprise(Device gpu);

}  // namespace ringtape::cuda
