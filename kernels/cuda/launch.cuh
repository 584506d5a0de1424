#pragma once
// How kernels are written and launched. nvcc compiles kernels/cuda/*.cu for the GPU. g++ compiles the same files for
// the emulation (which includes tests/emulation/device.h first) and executes them on the CPU under test. Rules for
// kernels:
//   - launch them only through launch<kernel>(), never with three angle brackets, and launch each one somewhere;
//   - declare shared memory with SHARED_ARRAY and SHARED_DYN;
//   - use only the intrinsics of tests/emulation/device.h, with warp operations in their _sync forms with explicit
//     masks;
//   - let every thread reach every barrier; order memory by __syncthreads, __syncwarp or __threadfence with an atomic;
//     shuffles order nothing, no two threads store to the same address, no block waits for another;
//   - put kernels and their __device__ helpers into an anonymous namespace;
//   - take grids from the problem or the device, and use grid-stride loops where grids can be large.
#include <cuda_runtime_api.h>

#if __has_include(<nvtx3/nvToolsExt.h>)  // some toolkits come without it
#include <nvtx3/nvToolsExt.h>
#else
inline int nvtxRangePushA(const char*) { return 0; }
inline int nvtxRangePop() { return 0; }
#endif

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
#define COUNTED(...) (__VA_ARGS__)  // COUNTED(x[i]) is x[i], in global memory: the emulation counts the access

namespace ringtape::cuda {

// Launches a kernel on a stream. (The emulation has its own version.)
template <auto kernel, class... P, class... Args>
cudaError_t start(void (*)(P...), dim3 blocks, dim3 threads, size_t shared_bytes, cudaStream_t stream, Args&&... args) {
  if (shared_bytes > 48 * 1024) {
    const auto entry = reinterpret_cast<const void*>(kernel);
    const cudaError_t status =
        cudaFuncSetAttribute(entry, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared_bytes));
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

// "softmax_forward<float>", from the compiler's name of a function.
template <auto kernel>
const char* kernel_name() {
  static const std::string name = readable_kernel_name(__PRETTY_FUNCTION__);
  return name.c_str();
}

// Launches the kernel on the compute stream of `device`, with arguments converted to its parameter types. An empty grid
// is a no-op. Throws CUDA's launch errors. With RINGTAPE_SYNC=1 it waits for the kernel, so that its errors name it.
template <auto kernel, class... Args>
void launch(Device device, Grid grid, Args&&... args) {
  if (size_t{grid.blocks.x} * grid.blocks.y * grid.blocks.z == 0) return;
  use(device.index);
  nvtxRangePushA(kernel_name<kernel>());
  cudaError_t status = start<kernel>(kernel, grid.blocks, grid.threads, grid.shared_bytes, compute_stream(device.index),
                                     std::forward<Args>(args)...);
  if (status == cudaSuccess && env::sync() && !recording(device.index))
    status = cudaStreamSynchronize(compute_stream(device.index));
  nvtxRangePop();
  check(status, kernel_name<kernel>(), __FILE__, __LINE__);
}

}  // namespace ringtape::cuda
