#pragma once
#include <algorithm>

#include "core/tensor.h"
#include "kernels/cuda/block.cuh"
#include "kernels/reduce.h"

// Sums over the rows of normalised operands, for the gradients of layer_norm and group_norm.
namespace ringtape::cuda {
namespace {

constexpr int kNormAcross = 32, kNormDown = 8;

// x and dy (N, M, C), each sample divided into `splits` runs of rows: partial (N, splits, 2, C) = the sum over a run of
// dy, and of dy u. normalised(n, m, c, x) is u.
template <class T, class S>
__global__ void __launch_bounds__(kNormAcross* kNormDown)
    norm_sums(compute_t<T>* partial, const T* dy, const T* x, S normalised, int64_t rows, int64_t channels,
              int64_t tiles, int64_t splits) {
  using C = compute_t<T>;
  SHARED_ARRAY(C, tile, [2][kNormDown][kNormAcross]);
  const int64_t run = blockIdx.x / tiles, n = run / splits, q = run % splits;
  const int64_t c = int64_t(blockIdx.x) % tiles * kNormAcross + threadIdx.x;
  const int64_t end = c < channels ? (q + 1) * rows / splits : 0;
  C sum = 0, dot = 0;
  for (int64_t m = q * rows / splits + threadIdx.y; m < end; m += kNormDown) {
    const int64_t at = (n * rows + m) * channels + c;
    const C g = C(dy[at]);
    sum += g;
    dot += g * normalised(n, m, c, C(x[at]));
  }
  tile[0][threadIdx.y][threadIdx.x] = sum;
  tile[1][threadIdx.y][threadIdx.x] = dot;
  __syncthreads();
  if (threadIdx.y > 1 || c >= channels) return;  // the first row of threads adds sums, the second one products
  C total = 0;
  for (int i = 0; i < kNormDown; ++i) total += tile[threadIdx.y][i][threadIdx.x];
  partial[(run * 2 + threadIdx.y) * channels + c] = total;
}

// (N, splits, 2, C), with enough blocks for a GPU: the number depends only on the shape.
template <class T, class S>
Tensor partial_norm_sums(const View& dy, const View& x, const S& normalised, int64_t samples, int64_t rows,
                         int64_t channels) {
  constexpr int64_t kBlocks = 1024, kLeastRows = 4 * kNormDown;
  const int64_t tiles = divide_up(channels, kNormAcross);
  const int64_t splits =
      std::clamp<int64_t>(kBlocks / std::max<int64_t>(tiles * samples, 1), 1, std::max<int64_t>(rows / kLeastRows, 1));
  const Tensor partial({samples, splits, 2, channels}, dtype_of<compute_t<T>>::value, x.device);
  launch<norm_sums<T, S>>(x.device, Grid{dim3(unsigned(tiles * splits * samples)), dim3(kNormAcross, kNormDown)},
                          View(partial).as<compute_t<T>>(), dy.as<T>(), x.as<T>(), normalised, rows, channels, tiles,
                          splits);
  return partial;
}

// dw and db (C), those that have data, from partial sums (runs, 2, C).
inline void add_norm_sums(const View& dw, const View& db, const Tensor& partial) {
  const int64_t channels = partial.dim(-1), runs = channels ? partial.size() / channels / 2 : 0;
  const auto add = [&](const View& to, int64_t which) {
    if (!to.data) return;
    View y = to;
    y.rank = 2;
    y.dims[0] = 1, y.dims[1] = y.strides[0] = channels, y.strides[1] = 1;
    sum_forward(y, partial.window({runs, channels}, {2 * channels, 1}, which * channels));
  };
  add(db, 0);
  add(dw, 1);
}

}  // namespace
}  // namespace ringtape::cuda
