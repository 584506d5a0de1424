#pragma once
// What kernels of compute capability 9.0 alone have: those compiled for sm_90a, and the emulation. Elsewhere RT_HOPPER
// is 0, and their bodies are left out.
//
//   fence_async()                 what the thread has stored until now, wgmma and the copy engine may read, once others
//                                 know of it
//   elect_one()                   true in one lane of a whole warp
//   more_registers<N>(), fewer_registers<N>()   of each thread of a warpgroup: 24 to 256, a multiple of 8
#include "kernels/cuda/gemm/async.cuh"

#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define RT_HOPPER 0
#else
#define RT_HOPPER 1
#endif

#if defined(__CUDACC__)  // the emulation has its own in emulation/device_hopper.h

#include <cuda.h>

#if RT_HOPPER

namespace ringtape::cuda {
namespace {

__device__ inline void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ inline bool elect_one() {
  uint32_t elected;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(elected));
  return elected != 0;
}

template <int N> __device__ inline void more_registers() {
  static_assert(N % 8 == 0 && N >= 24 && N <= 256);
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> __device__ inline void fewer_registers() {
  static_assert(N % 8 == 0 && N >= 24 && N <= 256);
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

}  // namespace
}  // namespace ringtape::cuda

#endif

#endif
