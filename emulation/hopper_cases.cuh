#pragma once
// Kernels with the copy engine, asynchronous products and mbarriers that count bytes, as tensor_cases.cuh has them.
#include "emulation/cases.cuh"
#include "kernels/cuda/hopper/bulk_copy.cuh"
#include "kernels/cuda/hopper/tensor_map.h"
#include "kernels/cuda/hopper/wgmma.cuh"

namespace ringtape::emulation_bugs {
namespace {

using namespace cuda;

// x as 16 rows of 64 bf16: each float is a 0 and the number itself.
constexpr int kBoxRows = 16;
CUtensorMap map_of(const float* x, int rows) { return tensor_map(DType::bf16, x, {64, kBoxRows}, {64, rows}); }
float box_at(int row, int column) {
  return row < 0 || row >= kBoxRows || column % 2 == 0 ? 0 : x_at(row * 32 + column / 2);
}
float factor_at(int round, int column, int k) { return float((column + k / 2 + round) % 5); }

// y (8 x 64) = the sum over rounds of a (64 x 64) b^T (64 x 64): a is a box that begins further down in each round,
// partly outside; b is stored by a warpgroup of producers. Another one multiplies.
constexpr int kProducts = 5, kStages = 2;
enum class WgmmaBug {
  none,
  no_full,
  full_of_one_lane,
  wrong_parity,
  phase_skipped,
  no_empty,
  no_fence_async,
  late_fence_async,
  no_init_fence,
  init_fence_of_other,
  few_bytes,
  many_bytes,
  bytes_not_expected,
  no_fence,
  fence_once,
  no_wait,
  outlives,
  wait_one_early,
  early_empty,
  sums_written,
  not_committed,
  inside_pattern,
  not_swizzled,
  wrong_stride,
  other_layout,
  warps_differ,
  one_warp_less,
  divergent,
  box_misaligned,
  box_axes,
  box_not_shared,
  box_touched,
  box_twice,
  box_outlives,
  map_unmade
};
struct Multiplied {
  bf16 a[kStages][64 * 64], b[kStages][64 * 64];
  uint64_t full[kStages], empty[kStages];
};

template <WgmmaBug bug> __device__ void produce(Multiplied& s, const CUtensorMap& map, int me, float* y) {
  for (int q = 0; q < kProducts; ++q) {
    const int stage = q % kStages;
    uint64_t* const full = s.full + stage;
    if (bug != WgmmaBug::no_empty && !(bug == WgmmaBug::phase_skipped && q == 2))
      mbarrier_wait(s.empty + stage, (q / kStages & 1) ^ 1);  // BUG: wgmma_empty
    if (me == 0) {
      constexpr uint32_t kBytes = 64 * 64 * 2;
      if (bug == WgmmaBug::bytes_not_expected) mbarrier_arrive(full);
      else mbarrier_expect(full, bug == WgmmaBug::few_bytes ? kBytes / 2 : bug == WgmmaBug::many_bytes ? 9000 : kBytes);
      bf16* to = s.a[stage];
      if (bug == WgmmaBug::box_misaligned) to += 64;
      if (bug == WgmmaBug::box_not_shared) to = reinterpret_cast<bf16*>(y);
      if (bug == WgmmaBug::box_axes) load_box(to, &map, full, {0, 4 * q - 4, 0});
      else load_box(to, &map, full, {0, 4 * q - 4});  // BUG: wgmma_load
      if (bug == WgmmaBug::box_twice) load_box(to, &map, full, {0, 4 * q - 4});
      if (bug == WgmmaBug::box_touched) s.a[stage][8] = bf16(1.0f);  // BUG: wgmma_touched
    }
    const int column = me / 2;
    for (int k = me % 2 * 32; k < me % 2 * 32 + 32; ++k)
      s.b[stage][column * 64 + ((k / 8) ^ (column % 8)) * 8 + k % 8] =
          bf16(factor_at(q, column, k));  // BUG: wgmma_stores
    if (bug != WgmmaBug::no_fence_async && bug != WgmmaBug::late_fence_async) fence_async();
    mbarrier_arrive(full);
    if (bug == WgmmaBug::late_fence_async) fence_async();
  }
  if (bug == WgmmaBug::box_outlives && me == 0) {
    mbarrier_wait(s.empty + kProducts % kStages, (kProducts / kStages & 1) ^ 1);
    load_box(s.a[kProducts % kStages], &map, s.full + kProducts % kStages, {0, 0});
  }
}

template <WgmmaBug bug> __device__ void consume(Multiplied& s, int me, float* y) {
  const int lane = me % 32;
  float d[32];
  for (int q = 0; q < kProducts; ++q) {
    const int stage = q % kStages, parity = (q / kStages & 1) ^ (bug == WgmmaBug::wrong_parity);
    if (bug == WgmmaBug::full_of_one_lane ? lane == 0 : bug != WgmmaBug::no_full)
      mbarrier_wait(s.full + stage, parity);  // BUG: wgmma_full
    const int stride = bug == WgmmaBug::wrong_stride ? 512 : 1024;
    uint64_t a = wgmma_operand(s.a[stage], 16, 1024), b = wgmma_operand(s.b[stage], 16, uint32_t(stride));
    if (bug == WgmmaBug::inside_pattern) a = wgmma_advance(a, 128);
    if (bug == WgmmaBug::not_swizzled) a &= ~(uint64_t{1} << 62);
    if (bug == WgmmaBug::warps_differ && me >= 96) b = wgmma_advance(b, 32);
    if (bug == WgmmaBug::early_empty && lane == 0) mbarrier_arrive(s.empty + stage);
    keep(d);
    if (bug != WgmmaBug::no_fence && (bug != WgmmaBug::fence_once || q == 0)) wgmma_fence();
    for (int k = 0; k < 4; ++k) {
      if (bug == WgmmaBug::one_warp_less && me >= 96 && q == 4 && k == 3) continue;
      if (bug == WgmmaBug::divergent && lane == 7) continue;
      const uint64_t a_k = wgmma_advance(a, k * 32), b_k = wgmma_advance(b, k * 32);
      constexpr bool kOuter = bug == WgmmaBug::other_layout;
      wgmma<bf16, 32, false, kOuter>(d, a_k, b_k, q + k > 0);  // BUG: wgmma_product
    }
    if (bug != WgmmaBug::not_committed) wgmma_commit();
    if (bug == WgmmaBug::sums_written) d[3] = 0;
    if (bug == WgmmaBug::wait_one_early) wgmma_wait<1>();
    else if (bug != WgmmaBug::no_wait && (bug != WgmmaBug::outlives || q + 1 < kProducts))
      wgmma_wait<0>();  // BUG: wgmma_wait
    keep(d);
    if (bug != WgmmaBug::early_empty && lane == 0) mbarrier_arrive(s.empty + stage);
  }
  if (me < 32)
    for (int j = 0; j < 8; ++j)
      for (int e = 0; e < 2; ++e) y[lane / 4 * 64 + j * 8 + lane % 4 * 2 + e] = d[j * 4 + e];
}

template <WgmmaBug bug> __global__ void multiplied(const __grid_constant__ CUtensorMap map, float* y) {
  SHARED_DYN_ALIGNED(Multiplied, shared);
  Multiplied& s = *shared;
  const int me = int(threadIdx.x);
  if (me == 0) {
    for (int i = 0; i < kStages; ++i) mbarrier_init(s.full + i, 129), mbarrier_init(s.empty + i, 4);
    if (bug != WgmmaBug::no_init_fence && bug != WgmmaBug::init_fence_of_other) fence_mbarrier_init();
  }
  if (bug == WgmmaBug::init_fence_of_other && me == 32) fence_mbarrier_init();
  __syncthreads();
  if (me >= 128) produce<bug>(s, map, me - 128, y);
  else consume<bug>(s, me, y);
}
template <WgmmaBug bug> void run_multiplied(float* x, float* y) {
  const CUtensorMap map = bug == WgmmaBug::map_unmade ? CUtensorMap{} : map_of(x, 64);
  start<multiplied<bug>>(multiplied<bug>, 1, 256, sizeof(Multiplied), map, y);
}
float multiplied_at(int i) {
  float sum = 0;
  for (int q = 0; q < kProducts; ++q)
    for (int k = 0; k < 64; ++k) sum += box_at(4 * q - 4 + i / 64, k) * factor_at(q, i % 64, k);
  return sum;
}

// The same of operands that lie along their outer index, 16 of the depth: a (64 x 16) and b (128 x 16) in two blocks.
template <class T> __global__ void multiplied_outer(float* y) {
  SHARED_DYN_ALIGNED(T, a);
  T* const b = a + 16 * 64;
  const int me = int(threadIdx.x);
  for (int k = 0; k < 16; ++k) {
    const auto at = [k](int i) { return k * 64 + ((i / 8) ^ (k % 8)) * 8 + i % 8; };
    if (me < 64) a[at(me)] = T(x_at(me * 16 + k));
    b[me / 64 * 16 * 64 + at(me % 64)] = T(factor_at(me, 0, 2 * k));
  }
  fence_async();
  __syncthreads();
  float d[64];
  wgmma_fence();
  wgmma<T, 64, true, true>(d, wgmma_operand(a, 16, 1024), wgmma_operand(b, 2048, 1024), false);
  wgmma_commit();
  wgmma_wait<0>();
  if (me < 16)  // rows 0 to 3
    for (int j = 0; j < 16; ++j)
      for (int e = 0; e < 2; ++e) y[me / 4 * 128 + j * 8 + me % 4 * 2 + e] = d[j * 4 + e];
}
template <class T> void run_multiplied_outer(float*, float* y) {
  start<multiplied_outer<T>>(multiplied_outer<T>, 1, 128, 3 * 16 * 64 * sizeof(T), y);
}
float multiplied_outer_at(int i) {
  float sum = 0;
  for (int k = 0; k < 16; ++k) sum += x_at(i / 128 * 16 + k) * factor_at(i % 128, 0, 2 * k);
  return sum;
}

// y = x + 1 in boxes of 4 rows, by one staging area; rows that are not there are not stored.
enum class StoreBug {
  none,
  no_fence_async,
  fence_of_storer,
  no_barrier,
  no_wait,
  outlives,
  early_reuse,
  not_committed,
  misaligned
};
template <StoreBug bug> __global__ void stored(const float* x, const __grid_constant__ CUtensorMap map) {
  SHARED_DYN_ALIGNED(bf16, staged);
  const int me = int(threadIdx.x);
  for (int q = -1; q < 5; ++q) {
    if (me == 0 && bug != StoreBug::no_wait) store_wait_read<0>();
    __syncthreads();
    const int row = me / 32, place = (q * 4 + row) * 32 + me % 32, chunk = me % 32 / 4;
    bf16* const to = staged + row * 64 + (chunk ^ row) * 8 + me % 4 * 2;
    to[0] = bf16(0.0f);
    to[1] = bf16(place < 0 || place >= kSize ? NAN : x[place] + 1);  // BUG: store_stages
    if (bug != StoreBug::no_fence_async && bug != StoreBug::fence_of_storer) fence_async();
    if (bug != StoreBug::no_barrier) __syncthreads();
    if (me == 0) {
      if (bug == StoreBug::fence_of_storer) fence_async();
      store_box(&map, bug == StoreBug::misaligned ? staged + 64 : staged, {0, q * 4});  // BUG: store_begins
      if (bug != StoreBug::not_committed) store_commit();
    }
    if (bug == StoreBug::early_reuse) {
      __syncthreads();
      if (me == 40) to[1] = bf16(0.0f);  // BUG: store_early_reuse
    }
  }
  if (me == 0 && bug != StoreBug::no_wait && bug != StoreBug::outlives) store_wait_read<0>();
}
template <StoreBug bug> void run_stored(float* x, float* y) {
  start<stored<bug>>(stored<bug>, 1, kThreads, 64 * 64 * sizeof(bf16), x, map_of(y, 4));
}
float one_more(int i) { return x_at(i) + 1; }

// One lane of each warp; registers are handed from one warpgroup to the others.
enum class RegistersBug { none, too_many, one_warp };
template <RegistersBug bug> __global__ void elected(float* y) {
  const int me = int(threadIdx.x);
  if (me < 128) {
    fewer_registers<40>();
  } else if (bug == RegistersBug::one_warp) {
    if (me < 160) more_registers<232>();  // BUG: registers_one_warp
  } else {
    more_registers<bug == RegistersBug::too_many ? 256 : 232>();  // BUG: registers_too_many
  }
  y[me] = elect_one();
  __syncwarp();
  float sum = 0;
  for (int i = 0; i < 32; ++i) sum += y[me / 32 * 32 + i];
  __syncwarp();
  y[me] = sum;
}
template <RegistersBug bug> void run_elected(float*, float* y) { start<elected<bug>>(elected<bug>, 1, 384, 0, y); }
float one_in_a_warp(int i) { return i < 384 ? 1 : NAN; }

// Two warps take turns, each waits for the other.
enum class TurnBug { none, skipped, alone, before_first, too_many };
template <TurnBug bug> __global__ void turns(float* y) {
  SHARED_ARRAY(uint64_t, ping, [1]);
  SHARED_ARRAY(uint64_t, pong, [1]);
  const int me = int(threadIdx.x);
  if (me == 0) mbarrier_init(ping, 32), mbarrier_init(pong, 32);
  __syncthreads();
  if (bug == TurnBug::too_many) mbarrier_expect(ping, 16);  // BUG: turn_too_many
  if (bug == TurnBug::before_first) {
    if (me < 32) mbarrier_arrive(ping);
    else mbarrier_wait(ping, 1);  // BUG: turn_before_first
  }
  for (int i = 0; i < 4 && bug != TurnBug::too_many && bug != TurnBug::before_first; ++i) {
    if (me < 32) {
      mbarrier_arrive(ping);
      if (bug != TurnBug::alone) mbarrier_wait(pong, i % 2);
    } else {
      if (bug != TurnBug::skipped || i != 1) mbarrier_wait(ping, i % 2);  // BUG: turn_waits
      mbarrier_arrive(pong);
    }
  }
  y[me] = 1;
}
template <TurnBug bug> void run_turns(float*, float* y) { start<turns<bug>>(turns<bug>, 1, 64, 0, y); }
float one_of_two_warps(int i) { return i < 64 ? 1 : NAN; }

constexpr Case kCorrectHopper[] = {
    {"wgmma_and_boxes", run_multiplied<WgmmaBug::none>, multiplied_at},
    {"wgmma_outer_bf16", run_multiplied_outer<bf16>, multiplied_outer_at},
    {"wgmma_outer_f16", run_multiplied_outer<f16>, multiplied_outer_at},
    {"boxes_stored", run_stored<StoreBug::none>, one_more},
    {"elected", run_elected<RegistersBug::none>, one_in_a_warp},
    {"turns", run_turns<TurnBug::none>, one_of_two_warps},
};
constexpr Case kHopperBugs[] = {
    {"wgmma_no_full", run_multiplied<WgmmaBug::no_full>, multiplied_at},
    {"wgmma_full_of_one_lane", run_multiplied<WgmmaBug::full_of_one_lane>, nullptr},
    {"wgmma_wrong_parity", run_multiplied<WgmmaBug::wrong_parity>, nullptr},
    {"wgmma_phase_skipped", run_multiplied<WgmmaBug::phase_skipped>, nullptr},
    {"wgmma_no_empty", run_multiplied<WgmmaBug::no_empty>, nullptr},
    {"wgmma_no_fence_async", run_multiplied<WgmmaBug::no_fence_async>, nullptr},
    {"wgmma_late_fence_async", run_multiplied<WgmmaBug::late_fence_async>, nullptr},
    {"wgmma_no_init_fence", run_multiplied<WgmmaBug::no_init_fence>, nullptr},
    {"wgmma_init_fence_of_other", run_multiplied<WgmmaBug::init_fence_of_other>, nullptr},
    {"wgmma_few_bytes", run_multiplied<WgmmaBug::few_bytes>, nullptr},
    {"wgmma_many_bytes", run_multiplied<WgmmaBug::many_bytes>, nullptr},
    {"wgmma_bytes_not_expected", run_multiplied<WgmmaBug::bytes_not_expected>, nullptr},
    {"wgmma_no_fence", run_multiplied<WgmmaBug::no_fence>, nullptr},
    {"wgmma_fence_once", run_multiplied<WgmmaBug::fence_once>, nullptr},
    {"wgmma_no_wait", run_multiplied<WgmmaBug::no_wait>, nullptr},
    {"wgmma_outlives", run_multiplied<WgmmaBug::outlives>, nullptr},
    {"wgmma_wait_one_early", run_multiplied<WgmmaBug::wait_one_early>, nullptr},
    {"wgmma_early_empty", run_multiplied<WgmmaBug::early_empty>, nullptr},
    {"wgmma_sums_written", run_multiplied<WgmmaBug::sums_written>, nullptr},
    {"wgmma_not_committed", run_multiplied<WgmmaBug::not_committed>, nullptr},
    {"wgmma_inside_pattern", run_multiplied<WgmmaBug::inside_pattern>, nullptr},
    {"wgmma_not_swizzled", run_multiplied<WgmmaBug::not_swizzled>, nullptr},
    {"wgmma_wrong_stride", run_multiplied<WgmmaBug::wrong_stride>, multiplied_at},
    {"wgmma_other_layout", run_multiplied<WgmmaBug::other_layout>, multiplied_at},
    {"wgmma_warps_differ", run_multiplied<WgmmaBug::warps_differ>, nullptr},
    {"wgmma_one_warp_less", run_multiplied<WgmmaBug::one_warp_less>, nullptr},
    {"wgmma_divergent", run_multiplied<WgmmaBug::divergent>, nullptr},
    {"box_misaligned", run_multiplied<WgmmaBug::box_misaligned>, nullptr},
    {"box_axes", run_multiplied<WgmmaBug::box_axes>, nullptr},
    {"box_not_shared", run_multiplied<WgmmaBug::box_not_shared>, nullptr},
    {"box_touched", run_multiplied<WgmmaBug::box_touched>, nullptr},
    {"box_twice", run_multiplied<WgmmaBug::box_twice>, nullptr},
    {"box_outlives", run_multiplied<WgmmaBug::box_outlives>, nullptr},
    {"map_unmade", run_multiplied<WgmmaBug::map_unmade>, nullptr},
    {"store_no_fence_async", run_stored<StoreBug::no_fence_async>, nullptr},
    {"store_fence_of_storer", run_stored<StoreBug::fence_of_storer>, nullptr},
    {"store_no_barrier", run_stored<StoreBug::no_barrier>, one_more},
    {"store_no_wait", run_stored<StoreBug::no_wait>, one_more},
    {"store_outlives", run_stored<StoreBug::outlives>, nullptr},
    {"store_early_reuse", run_stored<StoreBug::early_reuse>, nullptr},
    {"store_not_committed", run_stored<StoreBug::not_committed>, nullptr},
    {"store_misaligned", run_stored<StoreBug::misaligned>, nullptr},
    {"registers_too_many", run_elected<RegistersBug::too_many>, nullptr},
    {"registers_one_warp", run_elected<RegistersBug::one_warp>, nullptr},
    {"turn_skipped", run_turns<TurnBug::skipped>, nullptr},
    {"turn_alone", run_turns<TurnBug::alone>, nullptr},
    {"turn_before_first", run_turns<TurnBug::before_first>, nullptr},
    {"turn_too_many", run_turns<TurnBug::too_many>, nullptr},
};

}  // namespace
}  // namespace ringtape::emulation_bugs
