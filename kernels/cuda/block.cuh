#pragma once
#include <bit>
#include <limits>

#include "kernels/cuda/launch.cuh"

// One value from those of a warp or a block, in an order that their number alone decides. R gives identity<A>() and an
// associative combine(a, b) on values A: a number, or a plain struct of 32-bit words without initialisers.
namespace ringtape::cuda {
namespace {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

struct Sum {
  template <class A>
  static __device__ A identity() { return A(0); }
  template <class A>
  static __device__ A combine(A a, A b) { return a + b; }
};

struct Max {  // a NaN stays, on either side
  template <class A>
  static __device__ A identity() { return -std::numeric_limits<A>::infinity(); }
  template <class A>
  static __device__ A combine(A a, A b) {
    const A top = b > a ? b : a;
    return b != b ? b : top;
  }
};

// The number of this thread in its block, row by row: a warp is 32 in succession.
__device__ inline int thread_in_block() { return int(threadIdx.y * blockDim.x + threadIdx.x); }

template <class A>
__device__ A shuffle_xor(A a, int mask) {
  struct Words { uint32_t word[sizeof(A) / 4]; };
  static_assert(sizeof(Words) == sizeof(A));
  Words words = std::bit_cast<Words>(a);
  for (uint32_t& word : words.word) word = __shfl_xor_sync(kAllLanes, word, mask);
  return std::bit_cast<A>(words);
}

// Over each `width` neighbouring lanes, a power of two up to 32; every lane gets the result. Whole warps call it.
template <class R, class A>
__device__ A warp_reduce(A a, int width = kWarp) {
  for (int mask = width / 2; mask > 0; mask /= 2) a = R::combine(a, shuffle_xor(a, mask));
  return a;
}

// Over a block of whole warps; every thread gets the result. Every thread calls it.
template <class R, class A>
__device__ A block_reduce(A a) {
  SHARED_ARRAY(A, part, [kWarp]);
  const int lane = thread_in_block() % kWarp, warp = thread_in_block() / kWarp, warps = int(blockDim.x * blockDim.y) / kWarp;
  a = warp_reduce<R>(a);
  __syncthreads();  // `part` may still be read by the call before
  if (lane == 0) part[warp] = a;
  __syncthreads();
  return warp_reduce<R>(lane < warps ? part[lane] : R::template identity<A>());
}

// A team: the threads of one y in a block, `blockDim.x` of them. Up to 32, a power of two, there may be several in a
// block of whole warps; above, whole warps, it has the block to itself. Every thread of the block calls it.
template <class R, class A>
__device__ A team_reduce(A a) {
  return blockDim.x <= unsigned(kWarp) ? warp_reduce<R>(a, int(blockDim.x)) : block_reduce<R>(a);
}

// The smallest power of two that is at least `n`, and at most `most`, itself one.
inline int power_of_two(int64_t n, int most) {
  int power = 1;
  while (power < n && power < most) power *= 2;
  return power;
}

constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace
}  // namespace ringtape::cuda
