#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <initializer_list>

#include "core/device.h"

// Launches kernels whatever their parameters are: compiled once, not for each kernel. For kernels of known parameters
// launch.cuh has launch<kernel>().
namespace ringtape::cuda {

struct Grid {
  dim3 blocks, threads;
  size_t shared_bytes = 0;  // dynamic
};

struct Kernel {
  const void* entry;     // as the runtime takes it
  const char* spelling;  // of a function with the kernel in its name, by the compiler
};

// Launches the kernel on the compute stream of `device`. `args` are addresses of values of exactly its parameters'
// types. An empty grid is a no-op. Throws CUDA's launch errors. With RINGTAPE_SYNC=1 it waits for the kernel, so that
// its errors name it.
void launch(const Kernel& kernel, Device device, const Grid& grid, std::initializer_list<const void*> args);

}  // namespace ringtape::cuda
