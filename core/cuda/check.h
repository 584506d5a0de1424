#pragma once
#include <cuda_runtime_api.h>

#include "core/check.h"

namespace ringtape::cuda {

// Throws OutOfMemory where memory is short, DeviceError otherwise. `what` is the call, or the kernel. An error that CUDA
// reports once only is taken from it, so that the next call is not blamed for it.
[[noreturn]] void fail(cudaError_t status, const char* what, const char* file, int line);

inline void check(cudaError_t status, const char* what, const char* file, int line) {
  if (status != cudaSuccess) [[unlikely]] fail(status, what, file, line);
}

// "cudaErrorNoDevice: no CUDA-capable device is detected"
std::string text_of(cudaError_t status);

}  // namespace ringtape::cuda

// Every call of CUDA and of its libraries stands in one: check() has an overload for each status type.
#define RT_GPU_CHECK(call) ::ringtape::cuda::check((call), #call, __FILE__, __LINE__)
