#pragma once
// How kernels are written and launched. nvcc compiles kernels/cuda/*.cu for the GPU. g++ compiles the same files for
// the emulation (which includes emulation/device.h first) and executes them on the CPU under test. Rules for
// kernels:
//   - launch them only through launch<kernel>() or launchable<kernel>(), never with three angle brackets, and launch
//     each one somewhere;
//   - declare shared memory with SHARED_ARRAY and SHARED_DYN;
//   - use only the intrinsics of emulation/device.h, with warp operations in their _sync forms with explicit
//     masks;
//   - let every thread reach every barrier; order memory by __syncthreads, __syncwarp or __threadfence with an atomic;
//     shuffles order nothing, no two threads store to the same address, no block waits for another;
//   - put kernels and their __device__ helpers into an anonymous namespace;
//   - take grids from the problem or the device, and use grid-stride loops where grids can be large.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>
#include <utility>

#include "core/cuda/check.h"
#include "core/cuda/device.h"
#include "core/cuda/memory.h"
#include "core/view.h"
#include "kernels/cuda/launch.h"

#if defined(__CUDACC__)

#define SHARED_ARRAY(T, name, dims) __shared__ T name dims  // SHARED_ARRAY(float, tile, [32][33]);
#define SHARED_DYN(T, name)                                          \
  extern __shared__ __align__(16) unsigned char rt_dynamic_shared[]; \
  T* const name = reinterpret_cast<T*>(rt_dynamic_shared)
#define SHARED_DYN_ALIGNED(T, name) /* at a multiple of 1024 bytes */  \
  extern __shared__ __align__(1024) unsigned char rt_aligned_shared[]; \
  T* const name = reinterpret_cast<T*>(rt_aligned_shared)
#define COUNTED(...) (__VA_ARGS__)  // COUNTED(x[i]) is x[i], in global memory: the emulation counts the access

#define RT_OUTLINED __device__  // of a helper: the emulation compiles it once, not into each kernel that calls it

namespace ringtape::cuda {

// As launch() of launch.h takes it.
template <auto kernel> Kernel launchable() { return {reinterpret_cast<const void*>(kernel), __PRETTY_FUNCTION__}; }

}  // namespace ringtape::cuda

#elif defined(RINGTAPE_EMULATION)

namespace ringtape::cuda {

template <auto kernel> Kernel launchable() {
  return {&emulation::registered<kernel>, emulation::registered<kernel>.spelling};
}

}  // namespace ringtape::cuda

#else
#error "kernels are compiled by nvcc, or by g++ with emulation/device.h included first"
#endif

namespace ringtape::cuda {

template <class... P>
void launch(const Kernel& kernel, void (*)(P...), Device device, const Grid& grid,
            const std::type_identity_t<P>&... args) {
  launch(kernel, device, grid, {&args...});
}

// launch() of launch.h, with arguments that are converted to the kernel's parameter types.
template <auto kernel, class... Args> void launch(Device device, const Grid& grid, Args&&... args) {
  launch(launchable<kernel>(), kernel, device, grid, std::forward<Args>(args)...);
}

}  // namespace ringtape::cuda
