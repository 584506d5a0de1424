#pragma once
// The built-in names of nvcc, for kernels that g++ compiles for the emulation. It is included before everything else
// (g++ -x c++ -DRINGTAPE_EMULATION=1 -include emulation/device.h). Kernels must not use anything that is missing
// here.
#include <cuda_runtime_api.h>

#include <bit>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "emulation/device_math.h"
#include "emulation/kernel.h"
#include "emulation/report.h"
#include "emulation/scheduler.h"
#include "emulation/shared.h"
#include "emulation/traffic.h"
#include "emulation/warp.h"

// NOLINTBEGIN: names as CUDA has them
#define __global__ __attribute__((noinline))
#if defined(__SANITIZE_THREAD__)
// For the checker a kernel is inlined into one function, since the compiler does not report a store of a call's result,
// unless that is a number. Helpers of whose results this is not done are RT_OUTLINED: to compile them into each kernel
// would take most of the time.
#define __device__ __attribute__((always_inline))
#else
#define __device__
#endif
#define RT_OUTLINED __attribute__((noinline))
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define RT_INTRINSIC inline __attribute__((always_inline))

// const, as for a thread: the compiler may keep them in registers, and the checker does not see them.
extern const uint3 threadIdx __asm__("ringtape_thread_index");
extern const uint3 blockIdx __asm__("ringtape_block_index");
extern const uint3 blockDim __asm__("ringtape_block_size");
extern const uint3 gridDim __asm__("ringtape_grid_size");
inline constexpr int warpSize = 32;

#define SHARED_ARRAY(T, name, dims)                                                           \
  using name##_type = T dims;                                                                 \
  static constinit ::ringtape::emulation::SharedSlot name##_slot{#name, sizeof(name##_type)}; \
  name##_type& name = *static_cast<name##_type*>(::ringtape::emulation::shared(name##_slot))
#define SHARED_DYN(T, name) T* const name = static_cast<T*>(::ringtape::emulation::dynamic_shared())
#define SHARED_DYN_ALIGNED(T, name) SHARED_DYN(T, name)
#define COUNTED(...) (*::ringtape::emulation::counted(&(__VA_ARGS__)))

// Ends the grid, as on a GPU, not the process. Active in all builds.
#undef assert
#define assert(condition) \
  ((condition)            \
       ? void()           \
       : ::ringtape::emulation::trap("assertion " #condition " does not hold", ::ringtape::emulation::Place::here()))

namespace ringtape::emulation {

template <class T> RT_INTRINSIC uint64_t to_bits(T x) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
  uint64_t bits = 0;
  __builtin_memcpy(&bits, &x, sizeof(T));
  return bits;
}

template <class T> RT_INTRINSIC T from_bits(uint64_t bits) {
  T x;
  __builtin_memcpy(static_cast<void*>(&x), &bits, sizeof(T));
  return x;
}

template <class T> RT_INTRINSIC T* counted(T* p) {
  count_access(p, sizeof(T));
  return p;
}

// *p = f(*p); returns the old value.
template <class T, class F> RT_INTRINSIC T update(T* p, F f) {
  const T old = from_bits<T>(atomic_load(p, sizeof(T)));
  atomic_store(p, sizeof(T), to_bits<T>(f(old)));
  return old;
}

template <class T> RT_INTRINSIC T shuffle(unsigned mask, T x, int source, Place place) {
  return from_bits<T>(warp_operation(WarpOperation::shuffle, mask, to_bits(x), source, place));
}

// Calls a kernel, for the scheduler.
template <auto kernel, class Type = decltype(kernel)> struct Caller;
template <auto kernel, class... P> struct Caller<kernel, void (*)(P...)> {
  static_assert((std::is_trivially_copyable_v<P> && ...), "a GPU gets a copy of the arguments' bytes");
  static constexpr size_t sizes[] = {sizeof(P)..., 0};
  static void call(void* const* args) { call(args, std::index_sequence_for<P...>()); }
  template <size_t... i>
  __attribute__((no_sanitize("thread"))) static void call([[maybe_unused]] void* const* args,
                                                          std::index_sequence<i...>) {
    enter_kernel();
    kernel(*static_cast<P*>(args[i])...);
    leave_kernel();
  }
};

template <auto kernel> const char* kernel_name() { return __PRETTY_FUNCTION__; }

template <auto kernel> inline Kernel registered{kernel_name<kernel>(), Caller<kernel>::sizes, Caller<kernel>::call};

}  // namespace ringtape::emulation

// Barriers, votes and shuffles
#define RT_PLACE ::ringtape::emulation::Place place = ::ringtape::emulation::Place::here()

inline void __syncthreads(RT_PLACE) { ringtape::emulation::barrier(false, place); }
inline int __syncthreads_count(int predicate, RT_PLACE) { return ringtape::emulation::barrier(predicate != 0, place); }
inline int __syncthreads_or(int predicate, RT_PLACE) {
  return ringtape::emulation::barrier(predicate != 0, place) != 0;
}
inline int __syncthreads_and(int predicate, RT_PLACE) {
  return ringtape::emulation::barrier(predicate == 0, place) == 0;
}

inline void __syncwarp(unsigned mask = ~0u, RT_PLACE) {
  ringtape::emulation::warp_operation(ringtape::emulation::WarpOperation::synchronize, mask, 0, 0, place);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, RT_PLACE) {
  return unsigned(
      ringtape::emulation::warp_operation(ringtape::emulation::WarpOperation::ballot, mask, predicate != 0, 0, place));
}
inline int __any_sync(unsigned mask, int predicate, RT_PLACE) { return __ballot_sync(mask, predicate, place) != 0; }
inline int __all_sync(unsigned mask, int predicate, RT_PLACE) { return __ballot_sync(mask, !predicate, place) == 0; }
template <class T> RT_INTRINSIC unsigned __match_any_sync(unsigned mask, T x, RT_PLACE) {
  const uint64_t bits = ringtape::emulation::to_bits(x);
  return unsigned(ringtape::emulation::warp_operation(ringtape::emulation::WarpOperation::match, mask, bits, 0, place));
}

// `width` is a power of two up to 32: lanes read only from their own group of `width` lanes.
template <class T> RT_INTRINSIC T __shfl_sync(unsigned mask, T x, int source, int width = 32, RT_PLACE) {
  const int lane = ringtape::emulation::lane();
  return ringtape::emulation::shuffle(mask, x, (lane & ~(width - 1)) | (source & (width - 1)), place);
}
template <class T> RT_INTRINSIC T __shfl_xor_sync(unsigned mask, T x, int bits, int width = 32, RT_PLACE) {
  const int lane = ringtape::emulation::lane(), source = lane ^ bits;
  return ringtape::emulation::shuffle(mask, x, source > (lane | (width - 1)) ? lane : source, place);
}
template <class T> RT_INTRINSIC T __shfl_down_sync(unsigned mask, T x, unsigned distance, int width = 32, RT_PLACE) {
  const int lane = ringtape::emulation::lane(), source = lane + int(distance);
  return ringtape::emulation::shuffle(mask, x, source > (lane | (width - 1)) ? lane : source, place);
}
template <class T> RT_INTRINSIC T __shfl_up_sync(unsigned mask, T x, unsigned distance, int width = 32, RT_PLACE) {
  const int lane = ringtape::emulation::lane(), source = lane - int(distance);
  return ringtape::emulation::shuffle(mask, x, source < (lane & ~(width - 1)) ? lane : source, place);
}

#define RT_WARP_REDUCTION(name, T, operation)                                                                         \
  inline T name(unsigned mask, T x, RT_PLACE) {                                                                       \
    return T(ringtape::emulation::warp_operation(ringtape::emulation::WarpOperation::operation, mask, uint32_t(x), 0, \
                                                 place));                                                             \
  }
RT_WARP_REDUCTION(__reduce_add_sync, unsigned, add_u32)
RT_WARP_REDUCTION(__reduce_add_sync, int, add_u32)
RT_WARP_REDUCTION(__reduce_min_sync, unsigned, min_u32)
RT_WARP_REDUCTION(__reduce_min_sync, int, min_i32)
RT_WARP_REDUCTION(__reduce_max_sync, unsigned, max_u32)
RT_WARP_REDUCTION(__reduce_max_sync, int, max_i32)
RT_WARP_REDUCTION(__reduce_and_sync, unsigned, bit_and)
RT_WARP_REDUCTION(__reduce_or_sync, unsigned, bit_or)
RT_WARP_REDUCTION(__reduce_xor_sync, unsigned, bit_xor)
#undef RT_WARP_REDUCTION

// Memory: atomics are relaxed with device scope. Other writes are visible with them only if a fence is in between.
inline void __threadfence() { ringtape::emulation::thread_fence(); }
inline void __threadfence_system() { ringtape::emulation::thread_fence(); }
inline void __threadfence_block() {}
inline void __trap(RT_PLACE) { ringtape::emulation::trap("__trap()", place); }

#define RT_ATOMIC(name, expression)                                                               \
  template <class T> RT_INTRINSIC T name(T* p, std::type_identity_t<T> x) {                       \
    return ringtape::emulation::update(p, [&]([[maybe_unused]] T old) { return T(expression); }); \
  }
RT_ATOMIC(atomicAdd, old + x)
RT_ATOMIC(atomicSub, old - x)
RT_ATOMIC(atomicMax, old < x ? x : old)
RT_ATOMIC(atomicMin, x < old ? x : old)
RT_ATOMIC(atomicExch, x)
RT_ATOMIC(atomicAnd, old& x)
RT_ATOMIC(atomicOr, old | x)
RT_ATOMIC(atomicXor, old ^ x)
#undef RT_ATOMIC
template <class T> RT_INTRINSIC T atomicCAS(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> x) {
  return ringtape::emulation::update(p, [&](T old) { return old == expected ? x : old; });
}
RT_INTRINSIC unsigned atomicInc(unsigned* p, unsigned limit) {
  return ringtape::emulation::update(p, [&](unsigned old) { return old >= limit ? 0 : old + 1; });
}
RT_INTRINSIC unsigned atomicDec(unsigned* p, unsigned limit) {
  return ringtape::emulation::update(p, [&](unsigned old) { return old == 0 || old > limit ? limit : old - 1; });
}

// A read through the read-only cache: nothing may write to the address in the same grid.
template <class T> RT_INTRINSIC T __ldg(const T* p) {
  ringtape::emulation::cached_read(p, sizeof(T));
  return *p;
}
template <class T> RT_INTRINSIC T __ldca(const T* p) { return *p; }
template <class T> RT_INTRINSIC T __ldcg(const T* p) { return *p; }
template <class T> RT_INTRINSIC T __ldcs(const T* p) { return *p; }
template <class T> RT_INTRINSIC T __ldlu(const T* p) { return *p; }
template <class T> RT_INTRINSIC void __stcg(T* p, std::type_identity_t<T> x) { *p = x; }
template <class T> RT_INTRINSIC void __stcs(T* p, std::type_identity_t<T> x) { *p = x; }
template <class T> RT_INTRINSIC void __stwb(T* p, std::type_identity_t<T> x) { *p = x; }
// NOLINTEND

#include "emulation/device_hopper.h"
#include "emulation/device_matrix.h"
