#pragma once
// How a kernel is written and started. nvcc compiles kernels/cuda/*.cu for the GPU; g++ compiles the same files for the
// emulation (tests/emulation/device.h is then included first), which executes them on the CPU under test. So kernels
//   - are started through launch<kernel>() alone, never with three angle brackets, and each is started somewhere;
//   - declare shared memory with SHARED_ARRAY and SHARED_DYN;
//   - use the intrinsics that tests/emulation/device.h has, warp operations in their _sync forms with explicit masks;
//   - let every thread reach every barrier, and order memory by __syncthreads, __syncwarp or __threadfence with an atomic:
//     shuffles order nothing, no two threads store to one place, nobody waits for another block;
//   - stand, as their __device__ helpers do, in an anonymous namespace;
//   - take grids from the problem or the device, and loop grid-stride where it can be large.
#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>

#include <cstdint>
#include <utility>

#include "core/cuda/check.h"
#include "core/cuda/device.h"
#include "core/cuda/memory.h"
#include "core/env.h"
#include "core/view.h"

#if defined(__CUDACC__)

#define SHARED_ARRAY(T, name, dims) __shared__ T name dims  // SHARED_ARRAY(float, tile, [32][33]);
#define SHARED_DYN(T, name)                                               \
  extern __shared__ __align__(16) unsigned char rt_dynamic_shared[];      \
  T* const name = reinterpret_cast<T*>(rt_dynamic_shared)

namespace ringtape::cuda {

// Puts a kernel on a stream. (The emulation has its own.)
template <auto kernel, class... P, class... Args>
cudaError_t start(void (*)(P...), dim3 blocks, dim3 threads, size_t shared_bytes, cudaStream_t stream, Args&&... args) {
  if (shared_bytes > 48 * 1024) {
    const auto entry = reinterpret_cast<const void*>(kernel);
    const cudaError_t status = cudaFuncSetAttribute(entry, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared_bytes));
    if (status != cudaSuccess) return status;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = threads;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, static_cast<P>(std::forward<Args>(args))...);
}

}  // namespace ringtape::cuda

#elif !defined(RINGTAPE_EMULATION)
#error "kernels are compiled by nvcc, or by g++ with tests/emulation/device.h included first"
#endif

namespace ringtape::cuda {

struct Grid {
  dim3 blocks, threads;
  size_t shared_bytes = 0;  // dynamic
};

// "softmax_forward<float>", out of the compiler's spelling of a function.
template <auto kernel>
const char* kernel_name() {
  static const std::string name = readable_kernel_name(__PRETTY_FUNCTION__);
  return name.c_str();
}

// Puts the kernel on the compute stream of `device`, with arguments converted to the kernel's parameter types; an empty
// grid is no launch. Throws what CUDA says of it; with RINGTAPE_SYNC=1 waits for the kernel, and what fails in it names it.
template <auto kernel, class... Args>
void launch(Device device, Grid grid, Args&&... args) {
  if (size_t{grid.blocks.x} * grid.blocks.y * grid.blocks.z == 0) return;
  use(device.index);
  nvtxRangePushA(kernel_name<kernel>());
  cudaError_t status =
      start<kernel>(kernel, grid.blocks, grid.threads, grid.shared_bytes, compute_stream(device.index), std::forward<Args>(args)...);
  if (status == cudaSuccess && env::sync() && !recording(device.index)) status = cudaStreamSynchronize(compute_stream(device.index));
  nvtxRangePop();
  check(status, kernel_name<kernel>(), __FILE__, __LINE__);
}

}  // namespace ringtape::cuda
