#pragma once
#include "kernels/cuda/launch.cuh"

// Matrix products by a kernel of our own: for any strides and dtypes, and the reference for cuBLASLt.
namespace ringtape::cuda {
namespace {

// A batch of matrices in memory: element (i, j) of matrix b lies at data[b * batch_stride + i * row_stride + j * column_stride].
template <class T>
struct Matrix {
  T* data;
  int64_t row_stride, column_stride, batch_stride;
};

// c[b] = a[b] w[b] + bias, relu'd where asked: (m, k) times (k, n). c is contiguous.
struct Product {
  int64_t batch, m, n, k;
  bool relu;
};

constexpr int kGemmTile = 64, kGemmDepth = 16, kGemmThreads = 256, kPerThread = 4;  // a thread: 4 x 4 elements of c, 16 apart

// Loads 64 rows of a (or columns of w) from `outer` on, 16 deep from `depth` on; zero outside. Neighbouring threads take what
// lies side by side in memory.
template <class C, class T>
__device__ void load_tile(C (&tile)[kGemmDepth][kGemmTile + 1], const T* x, int64_t outer, int64_t outer_size, int64_t outer_stride,
                          int64_t depth, int64_t depth_size, int64_t depth_stride) {
  const bool outer_first = outer_stride == 1;
  for (int t = int(threadIdx.x); t < kGemmTile * kGemmDepth; t += kGemmThreads) {
    const int i = outer_first ? t % kGemmTile : t / kGemmDepth, p = outer_first ? t / kGemmTile : t % kGemmDepth;
    const bool inside = outer + i < outer_size && depth + p < depth_size;
    tile[p][i] = inside ? C(x[(outer + i) * outer_stride + (depth + p) * depth_stride]) : C(0);
  }
}

template <class T>
__global__ void __launch_bounds__(kGemmThreads) gemm_kernel(T* c, Matrix<const T> a, Matrix<const T> w, const T* bias, Product p) {
  using C = compute_t<T>;
  SHARED_ARRAY(C, a_tile, [kGemmDepth][kGemmTile + 1]);
  SHARED_ARRAY(C, w_tile, [kGemmDepth][kGemmTile + 1]);
  const int64_t row_tiles = (p.m + kGemmTile - 1) / kGemmTile, column_tiles = (p.n + kGemmTile - 1) / kGemmTile;
  const int ti = int(threadIdx.x) / 16, tj = int(threadIdx.x) % 16;
  for (int64_t number = blockIdx.x; number < row_tiles * column_tiles * p.batch; number += gridDim.x) {
    const int64_t b = number / (row_tiles * column_tiles);
    const int64_t row = number / column_tiles % row_tiles * kGemmTile, column = number % column_tiles * kGemmTile;
    C sum[kPerThread][kPerThread] = {};
    for (int64_t depth = 0; depth < p.k; depth += kGemmDepth) {
      load_tile(a_tile, a.data + b * a.batch_stride, row, p.m, a.row_stride, depth, p.k, a.column_stride);
      load_tile(w_tile, w.data + b * w.batch_stride, column, p.n, w.column_stride, depth, p.k, w.row_stride);
      __syncthreads();
#pragma unroll
      for (int q = 0; q < kGemmDepth; ++q)
#pragma unroll
        for (int i = 0; i < kPerThread; ++i)
#pragma unroll
          for (int j = 0; j < kPerThread; ++j) sum[i][j] += a_tile[q][ti + 16 * i] * w_tile[q][tj + 16 * j];
      __syncthreads();
    }
    for (int i = 0; i < kPerThread; ++i)
      for (int j = 0; j < kPerThread; ++j) {
        const int64_t r = row + ti + 16 * i, s = column + tj + 16 * j;
        if (r >= p.m || s >= p.n) continue;
        C y = sum[i][j] + (bias ? C(bias[s]) : C(0));
        if (p.relu && y < 0) y = 0;
        c[(b * p.m + r) * p.n + s] = T(y);
      }
  }
}

template <class T>
void gemm(Device device, T* c, Matrix<const T> a, Matrix<const T> w, const T* bias, const Product& p) {
  const int64_t tiles = (p.m + kGemmTile - 1) / kGemmTile * ((p.n + kGemmTile - 1) / kGemmTile) * p.batch;
  const int64_t most = int64_t(properties(device.index).multiprocessors) * 8;
  launch<gemm_kernel<T>>(device, Grid{dim3(unsigned(tiles < most ? tiles : most)), dim3(kGemmThreads)}, c, a, w, bias, p);
}

}  // namespace
}  // namespace ringtape::cuda
