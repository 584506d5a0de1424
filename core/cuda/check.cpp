#include "core/cuda/check.h"

#include <cstring>

#include "core/env.h"

namespace ringtape::cuda {
// Failures inside a kernel, which CUDA reports in a later call.
static bool asynchronous(cudaError_t status) {
  constexpr int kHardwareStackError = 714;  // to cudaErrorLaunchFailure (719): errors of a running kernel
  return status == cudaErrorIllegalAddress || (int(status) >= kHardwareStackError && status <= cudaErrorLaunchFailure);
}

static bool of_capture(cudaError_t status) { return int(status) >= 900 && int(status) <= 908; }

static const char* advice(cudaError_t status) {
  if (of_capture(status)) return "; while a graph is recorded, nothing may wait for the device or copy from it";
  if (!asynchronous(status)) return "";
  return env::sync() ? "; this process can no longer use the device"
                     : "; an earlier kernel may have failed, and this process can no longer use the device; set "
                       "RINGTAPE_SYNC=1 to find the kernel";
}

std::string text_of(cudaError_t status) { return concat(cudaGetErrorName(status), ": ", cudaGetErrorString(status)); }

void fail(cudaError_t status, const char* what, const char* file, int line) {
  cudaGetLastError();
  const bool call = std::strncmp(what, "cu", 2) == 0 && std::strchr(what, '(');
  const std::string place = call ? concat(" (", file, ":", line, ")") : "";
  const std::string message = concat(call ? "" : "kernel ", what, " failed: ", text_of(status), advice(status), place);
  if (status == cudaErrorMemoryAllocation) throw OutOfMemory(message);
  throw DeviceError(message);
}

}  // namespace ringtape::cuda
