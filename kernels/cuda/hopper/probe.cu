#include "kernels/cuda/hopper/probe.h"

#include <algorithm>
#include <span>

#include "core/tensor.h"
#include "kernels/cuda/hopper/bulk_copy.cuh"
#include "kernels/cuda/hopper/tensor_map.h"
#include "kernels/cuda/hopper/wgmma.cuh"

namespace ringtape::cuda {
namespace {

constexpr int kSide = 64, kRows = 40, kThirds = 3, kThreads = 128;

struct Probe {
  bf16 a[kSide][kSide], b[kThirds][kSide][kSide];
  uint64_t full;
};

// a (64 x 64) comes and goes by the copy engine, and has rows beyond its tensor; b is three such matrices. along (64 x
// 64) = a b^T of the first of them; outer (64 x 192) = a^T b of all, of their first 16 rows. One warpgroup.
__global__ void __launch_bounds__(kThreads, 1)
    probe_kernel(const __grid_constant__ CUtensorMap from, const __grid_constant__ CUtensorMap to, const bf16* b,
                 float* along, float* outer) {
#if RT_HOPPER
  SHARED_DYN_ALIGNED(Probe, shared);
  Probe& s = *shared;
  const int me = int(threadIdx.x), lane = me % 32, row = me / 32 * 16 + lane / 4, column = lane % 4 * 2;
  if (me == 0) {
    mbarrier_init(&s.full, 1);
    fence_mbarrier_init();
    mbarrier_expect(&s.full, sizeof s.a);
    load_box(s.a, &from, &s.full, {0, 0});
  }
  for (int i = me; i < kThirds * kSide * kSide; i += kThreads) {
    const int r = i / kSide % kSide, c = i % kSide;
    s.b[i / kSide / kSide][r][((c / 8) ^ (r % 8)) * 8 + c % 8] = b[i];
  }
  fence_async();
  __syncthreads();
  mbarrier_wait(&s.full, 0);
  float d[32], e[96];
  keep(d), keep(e);
  wgmma_fence();
  const uint64_t a = wgmma_operand(s.a, kSide * kSide * 2, 1024), of_b = wgmma_operand(s.b, kSide * kSide * 2, 1024);
  for (int k = 0; k < kSide / 16; ++k) wgmma<bf16, 32>(d, wgmma_advance(a, k * 32), wgmma_advance(of_b, k * 32), k > 0);
  wgmma<bf16, 96, true, true>(e, a, of_b, false);
  wgmma_commit();
  wgmma_wait<0>();
  keep(d), keep(e);
  for (int j = 0; j < 96; ++j) {
    const int at = row + j / 2 % 2 * 8, n = j / 4 * 8 + column + j % 2;
    if (j < 32) along[at * kSide + n] = d[j];
    outer[at * kThirds * kSide + n] = e[j];
  }
  if (me != 0) return;
  store_box(&to, s.a, {0, 0});
  store_commit();
  store_wait_read<0>();
#endif
}

// Whole numbers, so that sums are exact.
float of_a(int row, int column) { return row < kRows ? float((row * 3 + column * 5) % 7 - 3) : 0; }
float of_b(int third, int row, int column) { return float((third + row * 2 + column) % 5 - 2); }

bool right_along(std::span<const float> found) {
  for (int m = 0; m < kSide; ++m)
    for (int n = 0; n < kSide; ++n) {
      float sum = 0;
      for (int k = 0; k < kSide; ++k) sum += of_a(m, k) * of_b(0, n, k);
      if (found[size_t(m * kSide + n)] != sum) return false;
    }
  return true;
}
bool right_outer(std::span<const float> found) {
  for (int m = 0; m < kSide; ++m)
    for (int n = 0; n < kThirds * kSide; ++n) {
      float sum = 0;
      for (int k = 0; k < 16; ++k) sum += of_a(k, m) * of_b(n / kSide, k, n % kSide);
      if (found[size_t(m * kThirds * kSide + n)] != sum) return false;
    }
  return true;
}

}  // namespace

std::string hopper_surprise(Device gpu) {
  const Tensor a({kRows, kSide}, DType::bf16, Device{}), b({kThirds, kSide, kSide}, DType::bf16, Device{});
  for (int i = 0; i < kRows * kSide; ++i) a.span<bf16>()[size_t(i)] = bf16(of_a(i / kSide, i % kSide));
  for (int i = 0; i < kThirds * kSide * kSide; ++i)
    b.span<bf16>()[size_t(i)] = bf16(of_b(i / kSide / kSide, i / kSide % kSide, i % kSide));
  const Tensor there = a.copy_to(gpu), of_b_there = b.copy_to(gpu), back(a.shape(), DType::bf16, gpu);
  const Tensor along({kSide, kSide}, DType::f32, gpu), outer({kSide, kThirds * kSide}, DType::f32, gpu);
  const auto map = [](const Tensor& t) {
    return tensor_map(DType::bf16, View(t).data, {kSide, kRows}, {kSide, kSide});
  };
  launch<probe_kernel>(gpu, {dim3(1), dim3(kThreads), sizeof(Probe)}, map(there), map(back),
                       View(of_b_there).as<bf16>(), View(along).as<float>(), View(outer).as<float>());
  const Tensor came = back.copy_to(Device{}), of_along = along.copy_to(Device{}), of_outer = outer.copy_to(Device{});
  if (!std::ranges::equal(came.span<bf16>(), a.span<bf16>(), {}, &bf16::bits, &bf16::bits))
    return "boxes come or go otherwise than the manual says";
  if (!right_along(of_along.span<float>()))
    return "wgmma reads operands along the depth otherwise than the manual says";
  if (!right_outer(of_outer.span<float>()))
    return "wgmma reads operands along their outer index otherwise than the manual says";
  return {};
}

}  // namespace ringtape::cuda
