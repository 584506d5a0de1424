#pragma once
// Correct kernels, for which the checker must report nothing.
#include "core/dtype.h"
#include "emulation/cases.cuh"

namespace ringtape::emulation_bugs {
namespace {

__global__ void sum_of_block(const float* x, float* y) {
  SHARED_ARRAY(float, part, [32]);
  const int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32), i = global_index();
  for (int repeat = 0; repeat < 2; ++repeat) {
    const float sum = warp_sum(x[i]);
    __syncthreads();
    if (lane == 0) part[warp] = sum;
    __syncthreads();
    y[i] = warp_sum(lane < int(blockDim.x) / 32 ? part[lane] : 0);
  }
}
__global__ void tree_of_warp(const float* x, float* y) {
  SHARED_ARRAY(float, s, [kThreads]);
  s[threadIdx.x] = x[global_index()];
  __syncwarp();
  const unsigned lane = threadIdx.x % 32;
  for (unsigned d = 16; d > 0; d /= 2) {
    const float sum = lane < d ? s[threadIdx.x] + s[threadIdx.x + d] : 0;
    __syncwarp();
    if (lane < d) s[threadIdx.x] = sum;
    __syncwarp();
  }
  y[global_index()] = s[threadIdx.x / 32 * 32];
}
// Neighbouring threads write neighbouring bytes, then whole words, then bytes again.
__global__ void bytes_and_words(const float* x, float* y) {
  SHARED_ARRAY(unsigned char, bytes, [kThreads]);
  bytes[threadIdx.x] = static_cast<unsigned char>(x[global_index()]);
  __syncthreads();
  if (threadIdx.x < kThreads / 4) reinterpret_cast<unsigned*>(bytes)[threadIdx.x] += 0x01010101u;
  __syncthreads();
  y[global_index()] = float(bytes[threadIdx.x ^ 1]);
}
__global__ void dynamic_line(const float* x, float* y) {
  SHARED_DYN(float, line);
  line[threadIdx.x] = x[global_index()];
  __syncthreads();
  y[global_index()] = line[threadIdx.x ^ 1];
}
__global__ void votes(const float* x, float* y) {
  const int lane = int(threadIdx.x % 32);
  const float v = x[global_index()];
  const unsigned ballot = __ballot_sync(kFull, lane < 3), same = __match_any_sync(kFull, lane / 8);
  bool good = ballot == 7u && same == 0xffu << lane / 8 * 8;
  good = good && __any_sync(kFull, lane == 4) && !__all_sync(kFull, lane != 4) && __reduce_add_sync(kFull, lane) == 496;
  good = good && __reduce_min_sync(kFull, -lane) == -31 && __reduce_max_sync(kFull, unsigned(lane)) == 31u;
  good = good && __shfl_up_sync(kFull, lane, 1) == max(lane - 1, 0);
  good = good && __shfl_down_sync(kFull, lane, 1, 8) == (lane % 8 == 7 ? lane : lane + 1);
  good = good && __shfl_sync(kFull, lane, 2, 4) == lane / 4 * 4 + 2 &&
         __shfl_xor_sync(kFull, double(lane), 31) == 31 - lane;
  good = good && __syncthreads_count(threadIdx.x < 7) == 7 && __syncthreads_or(threadIdx.x == 9) &&
         !__syncthreads_and(threadIdx.x != 9);
  if (lane < 16) good = good && __shfl_xor_sync(0x0000ffffu, lane, 8) == (lane ^ 8);
  else good = good && __shfl_xor_sync(0xffff0000u, lane, 8) == (lane ^ 8);
  y[global_index()] = good ? v : 0;
}
__global__ void atomics(float* x, float* y) {  // x[0]: number of arrivals
  SHARED_ARRAY(int, n, [6]);
  if (threadIdx.x < 6) n[threadIdx.x] = threadIdx.x == 2 ? 1000 : 0;
  __syncthreads();
  const int t = int(threadIdx.x);
  atomicAdd(&n[0], 1);
  atomicMax(&n[1], t);
  atomicMin(&n[2], t);
  atomicOr(&n[3], 1 << t % 8);
  atomicCAS(&n[4], 0, t + 1);
  atomicInc(reinterpret_cast<unsigned*>(&n[5]), 4u);
  __syncthreads();
  const bool good =
      n[0] == kThreads && n[1] == kThreads - 1 && n[2] == 0 && n[3] == 255 && n[4] > 0 && n[5] == kThreads % 5;
  y[global_index()] = good ? x[global_index()] : 0;
}
// Each thread fences its writes; after a barrier one thread notifies the other blocks.
__global__ void all_fence(float* x, float* y) {
  SHARED_ARRAY(bool, last, [1]);
  y[2 + global_index() % 500] = x[global_index() % 500];
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last[0] = atomicAdd(reinterpret_cast<unsigned*>(y + 1), 1u) == gridDim.x - 1;
  __syncthreads();
  if (last[0] && threadIdx.x == 0) y[0] = y[2] + y[2 + kThreads];
}
void run_all_fence(float* x, float* y) {
  const unsigned zero = 0;
  __builtin_memcpy(y + 1, &zero, sizeof zero);
  emulation::mark_initialised(y + 1, sizeof zero);
  start<all_fence>(all_fence, 3, kThreads, 0, x, y);
}
float fenced_total(int i) { return i == 0 ? x_at(0) + x_at(kThreads) : NAN; }
__global__ void three_dimensions(float* x, float* y) {
  SHARED_ARRAY(float, tile, [4][4][9]);
  tile[threadIdx.z][threadIdx.y][threadIdx.x] = x[((blockIdx.x * 4 + threadIdx.z) * 4 + threadIdx.y) * 8 + threadIdx.x];
  __syncthreads();
  const unsigned t = threadIdx.x + 8 * (threadIdx.y + 4 * threadIdx.z);
  y[blockIdx.x * kThreads + t] = tile[t / 32][t / 8 % 4][t % 8];
}
void run_three_dimensions(float* x, float* y) {
  start<three_dimensions>(three_dimensions, kBlocks, dim3(8, 4, 4), 0, x, y);
}
__device__ bf16 narrow(float v) { return bf16(v); }
__global__ void struct_result(float* x, float* y) {  // stores of a call's result
  SHARED_ARRAY(bf16, line, [kThreads]);
  line[threadIdx.x] = narrow(x[global_index()] + 1);
  __syncthreads();
  line[threadIdx.x] = narrow(x[global_index()]);
  __syncthreads();
  y[global_index()] = float(line[threadIdx.x ^ 1]);
}
__global__ void local_array(float* x, float* y) {
  float mine[8];
  for (int i = 0; i < 8; ++i) mine[(i + int(x[0])) % 8] = x[global_index()] * float(i);
  y[global_index()] = mine[2];
}

constexpr Case kCorrect[] = {
    {"sum_of_block", run<sum_of_block>, total_of_my_block},
    {"tree_of_warp", run<tree_of_warp>, warp_total},
    {"bytes_and_words", run<bytes_and_words>, [](int i) { return x_at(i ^ 1) + 1; }},
    {"dynamic_line", run_dynamic<dynamic_line>, neighbour},
    {"votes", run<votes>, x_at},
    {"atomics", run<atomics>, x_at},
    {"last_block", run_last_block<true>, grid_total},
    {"all_fence", run_all_fence, fenced_total},
    {"three_dimensions", run_three_dimensions, x_at},
    {"struct_result", run<struct_result>, neighbour},
    {"local_array", run<local_array>, [](int i) { return x_at(i) * float((2 - 1 + 8) % 8); }},
};

}  // namespace
}  // namespace ringtape::emulation_bugs
