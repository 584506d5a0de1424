#pragma once
#include <cuda_runtime_api.h>

#include "core/check.h"

namespace ringtape::cuda {

// Throws OutOfMemory if memory is exhausted, else DeviceError. `what` is the call or the kernel. Clears an error that
// is not sticky, so that the next call does not report it again.
[[noreturn]] void fail(cudaError_t status, const char* what, const char* file, int line);

inline void check(cudaError_t status, const char* what, const char* file, int line) {
  if (status != cudaSuccess) [[unlikely]]
    fail(status, what, file, line);
}

// "cudaErrorNoDevice: no CUDA-capable device is detected"
std::string text_of(cudaError_t status);

}  // namespace ringtape::cuda

// Wraps every call of CUDA and its libraries; check() has an overload for each status type.
#define RT_GPU_CHECK(call) ::ringtape::cuda::check((call), #call, __FILE__, __LINE__)
