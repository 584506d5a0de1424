#pragma once
// The instructions of kernels/cuda/hopper/, for device.h.
#include <cuda.h>

#include "core/dtype.h"
#include "emulation/arena.h"
#include "emulation/barriers.h"
#include "emulation/bulk_copy.h"
#include "emulation/wgmma.h"

// NOLINTBEGIN: names as CUDA and PTX have them
#define __grid_constant__

namespace ringtape::cuda {

RT_INTRINSIC uint32_t shared_address(const void* p) {
  return uint32_t(static_cast<const char*>(p) - emulation::arena().shared);
}

RT_INTRINSIC void mbarrier_expect(uint64_t* barrier, uint32_t bytes, RT_PLACE) {
  emulation::arrive_expecting(barrier, bytes, place);
}
RT_INTRINSIC void fence_mbarrier_init() { emulation::fence_mbarriers(); }
RT_INTRINSIC void fence_async() { emulation::fence_async_proxy(); }

template <int N>
RT_INTRINSIC void load_box(void* to, const CUtensorMap* map, uint64_t* barrier, const int (&at)[N], RT_PLACE) {
  emulation::load_box(to, map, barrier, at, place);
}
template <int N> RT_INTRINSIC void store_box(const CUtensorMap* map, const void* from, const int (&at)[N], RT_PLACE) {
  emulation::store_box(map, from, at, place);
}
RT_INTRINSIC void store_commit() { emulation::commit_stores(); }
template <int groups> RT_INTRINSIC void store_wait_read() { emulation::wait_for_stores(groups); }

template <class T, int N, bool a_outer = false, bool b_outer = false>
RT_INTRINSIC void wgmma(float (&d)[N], uint64_t a, uint64_t b, bool adds, RT_PLACE) {
  static_assert(is_half_v<T> && N % 4 == 0 && N <= 128);
  constexpr auto type = std::is_same_v<T, bf16> ? emulation::TensorType::bf16 : emulation::TensorType::f16;
  emulation::multiply_async({type, 2 * N, a_outer, b_outer}, d, a, b, adds, place);
}
RT_INTRINSIC void wgmma_fence(RT_PLACE) { emulation::fence_products(place); }
RT_INTRINSIC void wgmma_commit(RT_PLACE) { emulation::commit_products(place); }
template <int groups> RT_INTRINSIC void wgmma_wait(RT_PLACE) { emulation::wait_for_products(groups, place); }
template <int N> RT_INTRINSIC void keep(float (&)[N]) {}

RT_INTRINSIC bool elect_one(RT_PLACE) { return emulation::elect(place); }
template <int N> RT_INTRINSIC void more_registers(RT_PLACE) { emulation::limit_registers(N, place); }
template <int N> RT_INTRINSIC void fewer_registers(RT_PLACE) { emulation::limit_registers(N, place); }

}  // namespace ringtape::cuda
// NOLINTEND
