#pragma once
// Shared by bugs.cu and correct.cuh. Does not use the headers of kernels/cuda: these kernels need no stream and no
// runtime.
#include <type_traits>

#include "emulation/bugs.h"
#include "emulation/memory.h"

namespace ringtape::emulation_bugs {
namespace {

constexpr int kThreads = 128;  // per block, unless a case says otherwise
constexpr int kBlocks = kSize / kThreads;
constexpr unsigned kFull = 0xffffffffu;

template <auto kernel, class... P>
void start(void (*)(P...), dim3 blocks, dim3 threads, size_t shared_bytes, std::type_identity_t<P>... args) {
  void* const pointers[] = {&args..., nullptr};
  const emulation::Kernel& registered = emulation::registered<kernel>;
  emulation::run_grid(registered, blocks, threads, shared_bytes, registered.with(pointers));
}
template <auto kernel> void run(float* x, float* y) { start<kernel>(kernel, kBlocks, kThreads, 0, x, y); }
template <auto kernel> void run_one_block(float* x, float* y) { start<kernel>(kernel, 1, kThreads, 0, x, y); }
template <auto kernel> void run_48_threads(float* x, float* y) { start<kernel>(kernel, 1, 48, 0, x, y); }
template <auto kernel> void run_dynamic(float* x, float* y) {
  start<kernel>(kernel, kBlocks, kThreads, kThreads * sizeof(float), x, y);
}

__device__ int global_index() { return int(blockIdx.x * blockDim.x + threadIdx.x); }
float x_at(int i) { return float(i % 7 + 1); }
float block_total(int block) {
  float total = 0;
  for (int i = 0; i < kThreads; ++i) total += x_at(block * kThreads + i);
  return total;
}

__device__ float warp_sum(float v) {
  for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(kFull, v, d);
  return v;
}

// The expected y.
float neighbour(int i) { return x_at(i ^ 1); }
float warp_total(int i) {
  float total = 0;
  for (int k = 0; k < 32; ++k) total += x_at(i / 32 * 32 + k);
  return total;
}
float tile_total(int i) {
  float total = 0;
  for (int b = 0; b < kBlocks; ++b) total += x_at(b * kThreads + (i % kThreads + 64) % kThreads);
  return total;
}
float total_of_my_block(int i) { return block_total(i / kThreads); }
float grid_total(int i) {
  if (i != 0) return i >= 2 && i < 2 + kBlocks ? block_total(i - 2) : NAN;
  float total = 0;
  for (int b = 0; b < kBlocks; ++b) total += block_total(b);
  return total;
}

// The last block to arrive sums the totals of the others. Without the fence it may not see them.
template <bool fence>
__global__ void last_block(const float* x, float* y) {  // y[0]: total, y[1]: counter, y[2...]: a total for each block
  SHARED_ARRAY(float, total, [1]);
  SHARED_ARRAY(bool, last, [1]);
  if (threadIdx.x == 0) total[0] = 0;
  __syncthreads();
  atomicAdd(&total[0], x[global_index()]);
  __syncthreads();
  if (threadIdx.x == 0) {
    y[2 + blockIdx.x] = total[0];
    if (fence) __threadfence();
    last[0] = atomicAdd(reinterpret_cast<unsigned*>(y + 1), 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last[0]) return;
  if (threadIdx.x < 32) {
    const float mine = threadIdx.x < gridDim.x ? y[2 + threadIdx.x] : 0;  // BUG: missing_threadfence
    const float sum = warp_sum(mine);
    if (threadIdx.x == 0) y[0] = sum;
  }
}
template <bool fence> void run_last_block(float* x, float* y) {
  const unsigned zero = 0;
  __builtin_memcpy(y + 1, &zero, sizeof zero);
  emulation::mark_initialised(y + 1, sizeof zero);
  start<last_block<fence>>(last_block<fence>, kBlocks, kThreads, 0, x, y);
}

}  // namespace
}  // namespace ringtape::emulation_bugs
