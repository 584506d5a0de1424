#pragma once
#include "kernels/cuda/launch.cuh"

// Matrix products by an own kernel, with operands that are functions of their indices: matrices of any strides and
// dtypes, patches of images. It is the reference for cuBLASLt and cuDNN, and runs where they cannot.
namespace ringtape::cuda {
namespace {

// out(b, q, i, j) = sum over p of a(b, i, p) * w(b, j, p), for m x n results of depth k, `batch` times. p runs over
// chunk q of the depth, [q * chunk, (q + 1) * chunk), so that a few results of large depth still occupy the device.
struct Product {
  int64_t batch, m, n, k;
  int64_t chunk = INT64_MAX;  // a multiple of kGemmDepth
  __host__ __device__ int64_t chunks() const { return k > chunk ? (k + chunk - 1) / chunk : 1; }
  int64_t tiles(int rows, int columns) const {
    return (m + rows - 1) / rows * ((n + columns - 1) / columns) * chunks() * batch;
  }
};

// An operand or a result may be other functions for each number of the batch, then start(b) begins one. The left
// operand may say that those are smaller: outer_size(), depth(); then the product has no chunks.
template <class X> __device__ void start(X& x, int64_t b) {
  if constexpr (requires { x.start(b); }) x.start(b);
}
template <class X> __device__ int64_t outer_size_of(const X& x, int64_t most) {
  if constexpr (requires { x.outer_size(); }) return x.outer_size();
  else return most;
}
template <class X> __device__ int64_t depth_of(const X& x, int64_t most) {
  if constexpr (requires { x.depth(); }) return x.depth();
  else return most;
}

constexpr int kGemmTile = 64, kGemmDepth = 16, kGemmThreads = 256, kPerThread = 4;  // per thread 4 x 4, 16 apart

// Loads 64 rows of an operand from `outer` on, and 16 of the depth from `depth` on; zero outside. Neighbouring threads
// read adjacent memory: along rows if x.outer_first(), else along the depth.
template <class C, class X>
RT_OUTLINED void load_tile(C (&tile)[kGemmDepth][kGemmTile + 1], const X& x, int64_t b, int64_t outer,
                           int64_t outer_size, int64_t depth, int64_t depth_end) {
  const bool outer_first = x.outer_first();
  for (int t = int(threadIdx.x); t < kGemmTile * kGemmDepth; t += kGemmThreads) {
    const int i = outer_first ? t % kGemmTile : t / kGemmDepth, p = outer_first ? t / kGemmTile : t % kGemmDepth;
    const bool inside = outer + i < outer_size && depth + p < depth_end;
    tile[p][i] = inside ? C(x.at(b, outer + i, depth + p)) : C(0);
  }
}

// sum(i, j) += the product of the tiles' rows ti + 16 i and tj + 16 j.
template <class C>
__device__ void multiply_tiles(C (&sum)[kPerThread][kPerThread], const C (&a)[kGemmDepth][kGemmTile + 1],
                               const C (&w)[kGemmDepth][kGemmTile + 1], int ti, int tj) {
#pragma unroll
  for (int d = 0; d < kGemmDepth; ++d)
#pragma unroll
    for (int i = 0; i < kPerThread; ++i)
#pragma unroll
      for (int j = 0; j < kPerThread; ++j) sum[i][j] += a[d][ti + 16 * i] * w[d][tj + 16 * j];
}

template <class C, class A, class W, class Out>
__global__ void __launch_bounds__(kGemmThreads) gemm_kernel(A a, W w, Out out, Product p) {
  SHARED_ARRAY(C, a_tile, [kGemmDepth][kGemmTile + 1]);
  SHARED_ARRAY(C, w_tile, [kGemmDepth][kGemmTile + 1]);
  const int64_t row_tiles = (p.m + kGemmTile - 1) / kGemmTile, column_tiles = (p.n + kGemmTile - 1) / kGemmTile,
                chunks = p.chunks();
  const int ti = int(threadIdx.x) / 16, tj = int(threadIdx.x) % 16;
  for (int64_t number = blockIdx.x; number < row_tiles * column_tiles * chunks * p.batch; number += gridDim.x) {
    const int64_t row = number / column_tiles % row_tiles * kGemmTile, column = number % column_tiles * kGemmTile;
    const int64_t q = number / (row_tiles * column_tiles) % chunks, b = number / (row_tiles * column_tiles * chunks);
    start(a, b), start(w, b), start(out, b);
    const int64_t end = q + 1 == chunks ? depth_of(a, p.k) : (q + 1) * p.chunk, rows = outer_size_of(a, p.m);
    C sum[kPerThread][kPerThread] = {};
    for (int64_t depth = q * p.chunk; depth < end; depth += kGemmDepth) {
      load_tile(a_tile, a, b, row, rows, depth, end);
      load_tile(w_tile, w, b, column, p.n, depth, end);
      __syncthreads();
      multiply_tiles(sum, a_tile, w_tile, ti, tj);
      __syncthreads();
    }
    for (int i = 0; i < kPerThread; ++i)
      for (int j = 0; j < kPerThread; ++j) {
        const int64_t r = row + ti + 16 * i, s = column + tj + 16 * j;
        if (r < rows && s < p.n) out.put(b, q, r, s, sum[i][j]);
      }
  }
}

template <class C, class A, class W, class Out>
void gemm(Device device, const A& a, const W& w, const Out& out, const Product& p) {
  const int64_t tiles = p.tiles(kGemmTile, kGemmTile);
  const int64_t most = int64_t(properties(device.index).multiprocessors) * 8;
  launch<gemm_kernel<C, A, W, Out>>(device, Grid{dim3(unsigned(tiles < most ? tiles : most)), dim3(kGemmThreads)}, a, w,
                                    out, p);
}

}  // namespace
}  // namespace ringtape::cuda
