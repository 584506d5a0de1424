#pragma once
#include <bit>
#include <limits>

#include "kernels/cuda/launch.cuh"

// Reductions over a warp or a block, in an order that depends only on the number of values. R has identity<A>() and an
// associative combine(a, b) on values A: a number, or a plain struct of 32-bit words without initialisers.
namespace ringtape::cuda {
namespace {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

struct Sum {
  template <class A> static __device__ A identity() { return A(0); }
  template <class A> static __device__ A combine(A a, A b) { return a + b; }
};

struct Max {  // NaN on either side gives NaN
  template <class A> static __device__ A identity() {
    using Limits = std::numeric_limits<A>;
    return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  }
  template <class A> static __device__ A combine(A a, A b) {
    const A top = b > a ? b : a;
    return b != b ? b : top;
  }
};

// The index of this thread in its block, row by row: a warp is 32 consecutive threads.
__device__ inline int thread_in_block() { return int(threadIdx.y * blockDim.x + threadIdx.x); }

template <class A> __device__ A shuffle_xor(A a, int mask) {
  struct Words {
    uint32_t word[sizeof(A) / 4];
  };
  static_assert(sizeof(Words) == sizeof(A));
  Words words = std::bit_cast<Words>(a);
  for (uint32_t& word : words.word) word = __shfl_xor_sync(kAllLanes, word, mask);
  return std::bit_cast<A>(words);
}

// Reduces each group of `width` neighbouring lanes, a power of two up to 32; every lane gets the result. Whole warps
// must call it.
template <class R, class A> __device__ A warp_reduce(A a, int width = kWarp) {
  for (int mask = width / 2; mask > 0; mask /= 2) a = R::combine(a, shuffle_xor(a, mask));
  return a;
}

// Reduces over a block of whole warps; every thread must call it and gets the result.
template <class R, class A> __device__ A block_reduce(A a) {
  SHARED_ARRAY(A, part, [kWarp]);
  const int lane = thread_in_block() % kWarp, warp = thread_in_block() / kWarp,
            warps = int(blockDim.x * blockDim.y) / kWarp;
  a = warp_reduce<R>(a);
  __syncthreads();  // the previous call may still read `part`
  if (lane == 0) part[warp] = a;
  __syncthreads();
  return warp_reduce<R>(lane < warps ? part[lane] : R::template identity<A>());
}

// Reduces over a team: the `blockDim.x` threads of one y in a block. Up to 32 threads (a power of two) a block of whole
// warps may have several teams; a larger team (of whole warps) is the only one of its block. Every thread of the block
// must call it.
template <class R, class A> RT_OUTLINED A team_reduce(A a) {
  return blockDim.x <= unsigned(kWarp) ? warp_reduce<R>(a, int(blockDim.x)) : block_reduce<R>(a);
}

// The smallest power of two that is at least `n`, but at most `most`, which is a power of two.
inline int power_of_two(int64_t n, int most) {
  int power = 1;
  while (power < n && power < most) power *= 2;
  return power;
}

constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace
}  // namespace ringtape::cuda
