#pragma once
// Copies that a thread begins and later waits for, and barriers of some threads of a block, as PTX names them.
//
//   cp_async<bytes>(to, from, valid)  copies 4, 8 or 16 bytes, aligned to as many, from global to shared memory; those
//                                     from `valid` on become zero and are not read
//   cp_async_commit()                 makes a group of this thread's copies since the last commit
//   cp_async_wait<n>()                waits until at most n of its newest groups go on. Others see it after a barrier
//   bar_sync(id, threads)             waits until `threads` threads, in whole warps, have come to barrier 1 to 15
//   bar_arrive(id, threads)           comes to it, and does not wait
//   mbarrier_init(b, count)           b: 8 bytes of shared memory, for phases that end after `count` arrivals each;
//                                     others may use it after a barrier
//   mbarrier_arrive(b)                arrives at the phase that goes on
//   cp_async_mbarrier_arrive(b)       arrives when this thread's copies until here have been done
//   mbarrier_wait(b, parity)          waits for the end of the newest phase of that parity: 0 for the first; of the one
//                                     before the first, 1, there is nothing to wait for
#include "kernels/cuda/gemm/mma.cuh"

#if defined(__CUDACC__)  // the emulation has its own in emulation/device_matrix.h

namespace ringtape::cuda {
namespace {

template <int bytes> __device__ inline void cp_async(void* to, const void* from, int valid = bytes) {
  static_assert(bytes == 4 || bytes == 8 || bytes == 16);
  if constexpr (bytes == 16)  // not through the L1
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(valid)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(shared_address(to)), "l"(from), "r"(valid),
                 "n"(bytes)
                 : "memory");
}
__device__ inline void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int groups> __device__ inline void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
}

__device__ inline void bar_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ inline void bar_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

__device__ inline void mbarrier_init(uint64_t* b, int count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(count) : "memory");
}
__device__ inline void mbarrier_arrive(uint64_t* b) {
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(shared_address(b)) : "memory");
}
__device__ inline void cp_async_mbarrier_arrive(uint64_t* b) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(b)) : "memory");
}
#if __CUDA_ARCH__ >= 900
#define RT_WAIT "try_wait"  // sleeps for a while
#else
#define RT_WAIT "test_wait"
#endif
__device__ inline void mbarrier_wait(uint64_t* b, int parity) {
  asm volatile(
      "{ .reg .pred passed;\n"
      "again: mbarrier." RT_WAIT
      ".parity.shared.b64 passed, [%0], %1;\n"
      "@!passed bra again; }" ::"r"(shared_address(b)),
      "r"(parity)
      : "memory");
}
#undef RT_WAIT

}  // namespace
}  // namespace ringtape::cuda

#endif
