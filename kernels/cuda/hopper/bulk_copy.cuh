#pragma once
// The copy engine, which moves boxes of tensors between global and shared memory (PTX ISA, "cp.async.bulk.tensor"), and
// mbarriers that count its bytes. One thread begins a copy. What is outside of the tensor is loaded as zeros, whose
// bytes count, and not stored. Maps of tensors are made by tensor_map.h; a kernel has them as parameters `const
// __grid_constant__ CUtensorMap`.
//
//   fence_mbarrier_init()             by the thread that has initialised mbarriers, before the copy engine uses them
//   mbarrier_expect(b, bytes)         arrives, and the phase ends only when so many bytes more have come
//   load_box(to, &map, b, {x, ...})   the box that begins at these coordinates, innermost first; its bytes come to b
//   store_box(&map, from, {x, ...})   to global memory; store_commit() makes a group of the thread's stores
//   store_wait_read<n>()              until at most n of its newest groups still read shared memory. What they write is
//                                     seen by later kernels
#include "kernels/cuda/hopper/hopper.cuh"

#if defined(__CUDACC__) && RT_HOPPER

namespace ringtape::cuda {
namespace {

__device__ inline void fence_mbarrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ inline void mbarrier_expect(uint64_t* b, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(bytes)
               : "memory");
}

template <int N> __device__ inline void load_box(void* to, const CUtensorMap* map, uint64_t* b, const int (&at)[N]) {
  static_assert(N == 2 || N == 4);
  if constexpr (N == 2)
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], "
        "[%2];" ::"r"(shared_address(to)),
        "l"(map), "r"(shared_address(b)), "r"(at[0]), "r"(at[1])
        : "memory");
  else
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, "
        "%6}], [%2];" ::"r"(shared_address(to)),
        "l"(map), "r"(shared_address(b)), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3])
        : "memory");
}

template <int N> __device__ inline void store_box(const CUtensorMap* map, const void* from, const int (&at)[N]) {
  static_assert(N == 2 || N == 4);
  if constexpr (N == 2)
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
                 "r"(shared_address(from)), "r"(at[0]), "r"(at[1])
                 : "memory");
  else
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
                 "r"(shared_address(from)), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3])
                 : "memory");
}
__device__ inline void store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int groups> __device__ inline void store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(groups) : "memory");
}

}  // namespace
}  // namespace ringtape::cuda

#endif
