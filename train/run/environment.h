#pragma once
#include <string>
#include <vector>

#include "core/device.h"
#include "train/io/json.h"

namespace ringtape {

// What a result depends on besides the options: version, machine, compiler, libraries, and the environment variables
// that are set. Also what multiplies bf16 on the CPU, and what --precision auto is here.
Json environment(const std::vector<std::string>& command_line);

// Whether the device multiplies matrices of bf16 faster than those of f32: a CPU with AVX512-BF16 or AMX that its
// kernels use (kernels/bf16_unit.h), a GPU whose tensor cores have bf16. Throws DeviceError for a device that does not
// exist.
bool multiplies_bf16(Device device);

// What --precision auto stands for: bf16 where the device multiplies it, else f32. Never tf32 or f16.
std::string auto_precision(Device device);

// Of a build with CUDA: the names and versions of its runtime, driver and libraries, "own kernels" or "none" for a
// library that is not used. Otherwise empty.
Json cuda_libraries();
std::string cuda_versions();  // the same as "CUDA 13.0, CUDA driver 13.0 (580.65.06), cuBLASLt 13.1, ..."

}  // namespace ringtape
