#pragma once
// Kernels with matrix instructions, asynchronous copies and barriers of some threads. Each has its correct form, and
// forms with one mistake, chosen by a flag.
#include <bit>
#include <cstdint>
#include <utility>

#include "emulation/cases.cuh"

namespace ringtape::emulation_bugs {
namespace {

using namespace cuda;

constexpr int kPitch = 24;  // 16-bit elements from row to row: 48 bytes

template <auto kernel> void run_warp(float* x, float* y) { start<kernel>(kernel, 1, 32, 0, x, y); }

// y (16 x 8) = a (16 x 16) b (16 x 8), where a and b are the first numbers of x, the odd columns of b twice as large.
enum class ProductBug { none, swapped, no_barrier, misaligned, divergent, returned, global, not_transposed };
template <class T, ProductBug bug> __global__ void product(const float* x, float* y) {
  SHARED_ARRAY(T, a_tile, [16 * kPitch]);
  SHARED_ARRAY(T, b_tile, [16 * kPitch]);
  const int lane = int(threadIdx.x);
  if (bug == ProductBug::returned && lane == 31) return;
  for (int i = lane; i < 256; i += 32) a_tile[i / 16 * kPitch + i % 16] = T(x[i]);
  for (int i = lane; i < 128; i += 32) b_tile[i / 8 * kPitch + i % 8] = T(x[256 + i] * float(1 + i % 2));
  if (bug != ProductBug::no_barrier) __syncwarp();
  uint32_t a[4], b[2];
  float d[4] = {};
  const T* row = a_tile + lane % 16 * kPitch + lane / 16 * 8;
  if (bug == ProductBug::misaligned) row += 1;
  if (bug == ProductBug::global) row = reinterpret_cast<const T*>(x);
  if (bug == ProductBug::divergent && lane == 7) ldmatrix(a, row);
  ldmatrix(a, row);  // BUG: matrix_product
  if (bug == ProductBug::not_transposed) ldmatrix(b, b_tile + lane % 16 * kPitch);
  else ldmatrix_trans(b, b_tile + lane % 16 * kPitch);
  if (bug == ProductBug::swapped) std::swap(a[1], a[2]);
  mma<T>(d, a, b);
  for (int i = 0; i < 4; ++i) y[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = d[i];
}
float product_at(int i) {
  if (i >= 128) return NAN;
  float sum = 0;
  for (int k = 0; k < 16; ++k) sum += x_at(i / 8 * 16 + k) * x_at(256 + k * 8 + i % 8);
  return sum * float(1 + i % 2);
}
__global__ void product_tf32(const float* x, float* y) {
  const int g = int(threadIdx.x) / 4, t = int(threadIdx.x) % 4;
  const auto bits = [](float v) { return std::bit_cast<uint32_t>(v); };
  const uint32_t a[4] = {bits(x[g * 16 + t]), bits(x[(g + 8) * 16 + t]), bits(x[g * 16 + t + 4]),
                         bits(x[(g + 8) * 16 + t + 4])};
  const uint32_t b[2] = {bits(x[256 + t * 8 + g]), bits(x[256 + (t + 4) * 8 + g])};
  float d[4] = {1, 1, 1, 1};
  mma_tf32(d, a, b);
  for (int i = 0; i < 4; ++i) y[(g + i / 2 * 8) * 8 + t * 2 + i % 2] = d[i];
}
float product_tf32_at(int i) {
  if (i >= 128) return NAN;
  float sum = 1;
  for (int k = 0; k < 8; ++k) sum += x_at(i / 8 * 16 + k) * x_at(256 + k * 8 + i % 8);
  return sum;
}

// y (16 x 16) = the transpose of x (16 x 16), in two ways for its halves.
__global__ void transposes(const float* x, float* y) {
  SHARED_ARRAY(bf16, from, [16 * kPitch]);
  SHARED_ARRAY(bf16, to, [16 * kPitch]);
  const int lane = int(threadIdx.x);
  for (int i = lane; i < 256; i += 32) from[i / 16 * kPitch + i % 16] = bf16(x[i]);
  __syncwarp();
  uint32_t m[4];  // (0, 0), (8, 0), (0, 8), (8, 8)
  ldmatrix(m, from + lane % 16 * kPitch + lane / 16 * 8);
  const uint32_t left[2] = {m[0], m[2]}, right[2] = {movmatrix_trans(m[1]), movmatrix_trans(m[3])};
  stmatrix_trans(to + lane % 16 * kPitch, left);
  stmatrix(to + lane % 16 * kPitch + 8, right);
  __syncwarp();
  for (int i = lane; i < 256; i += 32) y[i] = float(to[i / 16 * kPitch + i % 16]);
}
float transposed_at(int i) { return i < 256 ? x_at(i % 16 * 16 + i / 16) : NAN; }

// y[i] = the sum over blocks b of x[b kThreads + (i + 64) % kThreads]: parts of x are copied in turn into two buffers.
enum class CopyBug {
  none,
  no_wait,
  one_group_early,
  no_commit,
  no_barrier,
  overwritten,
  past_end,
  misaligned,
  touched
};
template <CopyBug bug> __global__ void copied(const float* x, float* y) {
  SHARED_ARRAY(float, parts, [2][kThreads]);
  float* const shared = parts[0];
  const int me = int(threadIdx.x);
  const auto begin = [&](int b) {
    float* to = shared + b % 2 * kThreads + me;
    if (bug == CopyBug::past_end) to += kThreads;
    if (bug == CopyBug::misaligned) to = reinterpret_cast<float*>(reinterpret_cast<char*>(to) + 2);
    cp_async<4>(to, x + b * kThreads + me);  // BUG: copy_begins
    if (bug != CopyBug::no_commit) cp_async_commit();
  };
  begin(0);
  float total = 0;
  for (int b = 0; b < kBlocks; ++b) {
    const bool more = b + 1 < kBlocks;
    if (more && bug != CopyBug::overwritten) begin(b + 1);
    else cp_async_commit();
    if (bug == CopyBug::touched && more) parts[(b + 1) % 2][me] = 0;  // BUG: copy_touched
    if (bug == CopyBug::one_group_early) cp_async_wait<2>();
    else if (bug != CopyBug::no_wait) cp_async_wait<1>();
    if (bug != CopyBug::no_barrier) __syncthreads();
    total += parts[b % 2][(me + 64) % kThreads];  // BUG: copy_read
    if (bug == CopyBug::overwritten && more) begin(b + 1), begin(b + 2 < kBlocks ? b + 2 : b);
    __syncthreads();
  }
  y[global_index()] = total;
}
__global__ void fills_with_zeros(const float* x, float* y) {
  SHARED_ARRAY(float4, lines, [kThreads]);
  cp_async<16>(lines + threadIdx.x, x + threadIdx.x % 8 * 4, int(threadIdx.x % 5) * 4);
  cp_async_commit();
  cp_async_wait<0>();
  const float4 v = lines[threadIdx.x];
  y[global_index()] = v.x + v.y + v.z + v.w;
}
float filled_at(int i) {
  float total = 0;
  for (int k = 0; k < i % kThreads % 5; ++k) total += x_at(i % kThreads % 8 * 4 + k);
  return total;
}

// Two warps produce rows in two buffers, two others consume them: y[i] of the consumers is the sum of the rows' values.
constexpr int kRounds = 6, kHalf = 64;
enum class HandBug { none, no_full, early_empty, other_count, too_many, half_a_warp, number };
template <HandBug bug> __global__ void handed(const float* x, float* y) {
  SHARED_ARRAY(float, rows, [2][kHalf]);
  const int me = int(threadIdx.x), i = me % kHalf;
  if (me < kHalf) {
    for (int r = 0; r < kRounds; ++r) {
      if (r >= 2) bar_sync(3 + r % 2, kThreads);
      rows[r % 2][i] = x[r * kHalf + i];
      if (bug == HandBug::other_count && i < 32) bar_arrive(1 + r % 2, kHalf);
      else if (bug == HandBug::half_a_warp) bar_arrive(1 + r % 2, kThreads - 32);
      else if (bug == HandBug::too_many) bar_arrive(1 + r % 2, kThreads + 32);
      else if (bug == HandBug::number) bar_arrive(16, kThreads);  // BUG: hand_number
      else bar_arrive(1 + r % 2, kThreads);
    }
    return;
  }
  float total = 0;
  for (int r = 0; r < kRounds; ++r) {
    if (bug == HandBug::too_many) bar_sync(1 + r % 2, kThreads + 32);  // BUG: hand_too_many
    else if (bug == HandBug::half_a_warp) i % 32 < 16 ? bar_sync(1 + r % 2, kThreads - 32) : void();
    else if (bug != HandBug::no_full) bar_sync(1 + r % 2, kThreads);
    if (bug == HandBug::early_empty && r + 2 < kRounds) bar_arrive(3 + r % 2, kThreads);
    total += rows[r % 2][(i + 32) % kHalf];
    if (bug != HandBug::early_empty && r + 2 < kRounds) bar_arrive(3 + r % 2, kThreads);
  }
  y[blockIdx.x * kThreads + i] = total;
}
float handed_at(int i) {
  if (i % kThreads >= kHalf) return NAN;
  float total = 0;
  for (int r = 0; r < kRounds; ++r) total += x_at(r * kHalf + (i % kHalf + 32) % kHalf);
  return total;
}

// The same, with mbarriers that count the copies of the producers.
enum class PhaseBug { none, no_init, wrong_parity, count, no_wait, early_arrival, twice };
template <PhaseBug bug> __global__ void phased(const float* x, float* y) {
  SHARED_ARRAY(float, rows, [2][kHalf]);
  SHARED_ARRAY(uint64_t, full, [2]);
  SHARED_ARRAY(uint64_t, empty, [2]);
  const int me = int(threadIdx.x), i = me % kHalf;
  if (me == 0 && bug != PhaseBug::no_init)
    for (int b = 0; b < 2; ++b) {
      mbarrier_init(full + b, kHalf + (bug == PhaseBug::count));
      mbarrier_init(bug == PhaseBug::twice ? full + b : empty + b, kHalf);  // BUG: phase_twice
    }
  __syncthreads();
  if (me < kHalf) {
    for (int r = 0; r < kRounds; ++r) {
      mbarrier_wait(empty + r % 2, r / 2 % 2 ^ 1);
      cp_async<4>(&rows[r % 2][i], x + r * kHalf + i);
      if (bug == PhaseBug::early_arrival) mbarrier_arrive(full + r % 2);
      else cp_async_mbarrier_arrive(full + r % 2);
    }
    return;
  }
  float total = 0;
  for (int r = 0; r < kRounds; ++r) {
    if (bug != PhaseBug::no_wait)
      mbarrier_wait(full + r % 2, r / 2 % 2 ^ (bug == PhaseBug::wrong_parity));  // BUG: phase_waits
    total += rows[r % 2][(i + 32) % kHalf];                                      // BUG: phase_consumes
    mbarrier_arrive(empty + r % 2);
  }
  y[blockIdx.x * kThreads + i] = total;
}

__global__ void phase_unordered(const float* x, float* y) {
  SHARED_ARRAY(uint64_t, barrier, [1]);
  if (threadIdx.x == 0) mbarrier_init(barrier, 32);
  y[threadIdx.x] = __shfl_sync(kFull, x[threadIdx.x], 0);
  mbarrier_arrive(barrier);  // BUG: phase_init_unordered
}

// Rows of 16 bytes, `pitch` bytes apart, are read as matrices and then by the lanes; for what is counted of it.
__global__ void reads_rows(float* y, int pitch) {
  SHARED_DYN(char, rows);
  const int lane = int(threadIdx.x);
  *reinterpret_cast<float4*>(rows + lane * pitch) = float4{1, 1, 1, 1};
  __syncwarp();
  uint32_t m[4];
  ldmatrix(m, rows + lane * pitch);
  y[lane] = COUNTED(*reinterpret_cast<const float4*>(rows + lane * pitch)).x + std::bit_cast<float>(m[0]);
}

constexpr Case kCorrectTensor[] = {
    {"product_bf16", run_warp<product<bf16, ProductBug::none>>, product_at},
    {"product_f16", run_warp<product<f16, ProductBug::none>>, product_at},
    {"product_tf32", run_warp<product_tf32>, product_tf32_at},
    {"transposes", run_warp<transposes>, transposed_at},
    {"copied", run<copied<CopyBug::none>>, tile_total},
    {"fills_with_zeros", run<fills_with_zeros>, filled_at},
    {"handed", run<handed<HandBug::none>>, handed_at},
    {"phased", run<phased<PhaseBug::none>>, handed_at},
};
constexpr Case kTensorBugs[] = {
    {"fragments_swapped", run_warp<product<bf16, ProductBug::swapped>>, product_at},
    {"fragment_not_transposed", run_warp<product<f16, ProductBug::not_transposed>>, product_at},
    {"matrix_without_syncwarp", run_warp<product<bf16, ProductBug::no_barrier>>, product_at},
    {"matrix_misaligned", run_warp<product<bf16, ProductBug::misaligned>>, nullptr},
    {"matrix_not_shared", run_warp<product<bf16, ProductBug::global>>, nullptr},
    {"matrix_divergent", run_warp<product<bf16, ProductBug::divergent>>, nullptr},
    {"matrix_returned_lane", run_warp<product<bf16, ProductBug::returned>>, nullptr},
    {"copy_not_awaited", run<copied<CopyBug::no_wait>>, tile_total},
    {"copy_one_group_early", run<copied<CopyBug::one_group_early>>, tile_total},
    {"copy_not_committed", run<copied<CopyBug::no_commit>>, tile_total},
    {"copy_without_barrier", run<copied<CopyBug::no_barrier>>, tile_total},
    {"copy_overwrites", run<copied<CopyBug::overwritten>>, nullptr},
    {"copy_past_end", run<copied<CopyBug::past_end>>, nullptr},
    {"copy_misaligned", run<copied<CopyBug::misaligned>>, nullptr},
    {"copy_target_touched", run<copied<CopyBug::touched>>, tile_total},
    {"hand_without_full", run<handed<HandBug::no_full>>, handed_at},
    {"hand_empty_too_early", run<handed<HandBug::early_empty>>, nullptr},
    {"hand_other_count", run<handed<HandBug::other_count>>, nullptr},
    {"hand_too_many", run<handed<HandBug::too_many>>, nullptr},
    {"hand_half_a_warp", run<handed<HandBug::half_a_warp>>, nullptr},
    {"hand_number", run<handed<HandBug::number>>, nullptr},
    {"phase_not_initialised", run<phased<PhaseBug::no_init>>, nullptr},
    {"phase_initialised_twice", run<phased<PhaseBug::twice>>, nullptr},
    {"phase_init_unordered", run_warp<phase_unordered>, nullptr},
    {"phase_wrong_parity", run<phased<PhaseBug::wrong_parity>>, handed_at},
    {"phase_count_too_large", run<phased<PhaseBug::count>>, nullptr},
    {"phase_not_awaited", run<phased<PhaseBug::no_wait>>, handed_at},
    {"phase_arrives_before_copy", run<phased<PhaseBug::early_arrival>>, handed_at},
};

}  // namespace
}  // namespace ringtape::emulation_bugs
