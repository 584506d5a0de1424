#include "kernels/cuda/launch.h"

#if __has_include(<nvtx3/nvToolsExt.h>)  // some toolkits come without it
#include <nvtx3/nvToolsExt.h>
#else
inline int nvtxRangePushA(const char*) { return 0; }
inline int nvtxRangePop() { return 0; }
#endif

#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "core/cuda/check.h"
#include "core/cuda/device.h"
#include "core/cuda/memory.h"
#include "core/env.h"

namespace ringtape::cuda {

// "softmax_forward<float>"
static const char* name_of(const Kernel& kernel) {
  thread_local std::unordered_map<const void*, std::string> names;
  std::string& name = names[kernel.entry];
  if (name.empty()) name = readable_kernel_name(kernel.spelling);
  return name.c_str();
}

// Shared memory of a block beyond 48 KiB must be asked for, once for a kernel and a device.
static cudaError_t allow_shared(const Kernel& kernel, int index, size_t bytes) {
  if (bytes <= 48 * 1024) return cudaSuccess;
  thread_local std::map<std::pair<const void*, int>, size_t> allowed;
  size_t& most = allowed[{kernel.entry, index}];
  if (bytes <= most) return cudaSuccess;
  const cudaError_t status =
      cudaFuncSetAttribute(kernel.entry, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes));
  if (status == cudaSuccess) most = bytes;
  return status;
}

void launch(const Kernel& kernel, Device device, const Grid& grid, std::initializer_list<const void*> args) {
  if (size_t{grid.blocks.x} * grid.blocks.y * grid.blocks.z == 0) return;
  use(device.index);
  const cudaStream_t stream = compute_stream(device.index);
  const char* const name = name_of(kernel);
  nvtxRangePushA(name);
  cudaError_t status = allow_shared(kernel, device.index, grid.shared_bytes);
  if (status == cudaSuccess)
    status = cudaLaunchKernel(kernel.entry, grid.blocks, grid.threads, const_cast<void**>(args.begin()),
                              grid.shared_bytes, stream);
  if (status == cudaSuccess && env::sync() && !recording(device.index)) status = cudaStreamSynchronize(stream);
  nvtxRangePop();
  check(status, name, __FILE__, __LINE__);
}

}  // namespace ringtape::cuda
