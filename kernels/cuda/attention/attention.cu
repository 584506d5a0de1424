#include "kernels/attention.h"

#include "core/tensor.h"
#include "kernels/cuda/attention/attention_mma.cuh"

// Where tensor cores do not multiply (attention_mma.cuh): a block has 64 rows of one head and goes over all columns, 64
// at a time, whose scores are only in registers. First come the logarithms of the sums of all rows; then y, and
// likewise each gradient, is a sum with known weights.
namespace ringtape::cuda {
namespace {

template <class C> using TileOf = C[kGemmDepth][kGemmTile + 1];
template <class C> using Scores = C[kPerThread][kPerThread];  // of rows ti + 16 i and columns tj + 16 j of a tile

template <class C, class T>
__device__ void multiply_rows(Scores<C>& s, TileOf<C>& a, TileOf<C>& w, const Matrix<T>& x, const Matrix<T>& y,
                              int64_t row, int64_t rows, int64_t column, int64_t columns, int64_t depth) {
  const int ti = int(threadIdx.x) / 16, tj = int(threadIdx.x) % 16;
  for (int i = 0; i < kPerThread; ++i)
    for (int j = 0; j < kPerThread; ++j) s[i][j] = 0;
  for (int64_t p = 0; p < depth; p += kGemmDepth) {
    load_tile(a, x, 0, row, rows, p, depth);
    load_tile(w, y, 0, column, columns, p, depth);
    __syncthreads();
    multiply_tiles(s, a, w, ti, tj);
    __syncthreads();
  }
}

// exp(top) sum is the sum of exp over some scores of a row.
template <class C> struct RowSum { C top, sum; };
struct AddRowSums {
  template <class A> static __device__ A identity() { return {Max::identity<decltype(A::top)>(), 0}; }
  template <class A> static __device__ A combine(const A& a, const A& b) {
    const auto top = Max::combine(a.top, b.top);
    if (top == Max::identity<decltype(A::top)>()) return {top, 0};
    return {top, a.sum * Math::exp(a.top - top) + b.sum * Math::exp(b.top - top)};
  }
};

template <class T>
__global__ void __launch_bounds__(kGemmThreads)
    attention_lse_kernel(compute_t<T>* lse, Heads<const T> q, Heads<const T> k, AttentionSizes a) {
  using C = compute_t<T>;
  SHARED_ARRAY(C, a_tile, [kGemmDepth][kGemmTile + 1]);
  SHARED_ARRAY(C, w_tile, [kGemmDepth][kGemmTile + 1]);
  const int ti = int(threadIdx.x) / 16, tj = int(threadIdx.x) % 16;
  const int64_t row_tiles = divide_up(a.queries, kGemmTile);
  for (int64_t number = blockIdx.x; number < a.heads * row_tiles; number += gridDim.x) {
    const int64_t head = number / row_tiles, row = number % row_tiles * kGemmTile;
    RowSum<C> sums[kPerThread];
    for (RowSum<C>& sum : sums) sum = AddRowSums::identity<RowSum<C>>();
    for (int64_t column = 0; column < a.keys && !(a.causal && column >= row + kGemmTile); column += kGemmTile) {
      Scores<C> s;
      multiply_rows(s, a_tile, w_tile, q.rows(head), k.rows(head), row, a.queries, column, a.keys, a.features);
      for (int i = 0; i < kPerThread; ++i) {
        const int64_t r = row + ti + 16 * i;
        RowSum<C> here = AddRowSums::identity<RowSum<C>>();
        for (int j = 0; j < kPerThread; ++j) {
          const int64_t c = column + tj + 16 * j;
          s[i][j] = c < a.keys && !(a.causal && c > r) ? s[i][j] * C(a.scale) : Max::identity<C>();
          here.top = Max::combine(here.top, s[i][j]);
        }
        if (here.top == Max::identity<C>()) continue;
        for (int j = 0; j < kPerThread; ++j) here.sum += Math::exp(s[i][j] - here.top);
        sums[i] = AddRowSums::combine(sums[i], here);
      }
    }
    for (int i = 0; i < kPerThread; ++i) {
      const RowSum<C> sum = warp_reduce<AddRowSums>(sums[i], 16);
      const int64_t r = row + ti + 16 * i;
      if (tj == 0 && r < a.queries) lse[head * a.queries + r] = sum.top + Math::log(sum.sum);
    }
  }
}

// delta (heads, n): the products of the rows of y and dy, each by a warp.
template <class T>
__global__ void __launch_bounds__(256) attention_delta_kernel(compute_t<T>* delta, Heads<const T> y, Heads<const T> dy,
                                                              int64_t heads, int64_t n, int64_t e) {
  using C = compute_t<T>;
  for (int64_t row = thread_in_grid() / kWarp; row < heads * n; row += threads_in_grid() / kWarp) {
    const auto a = y.rows(row / n), b = dy.rows(row / n);
    C sum = 0;
    for (int64_t c = threadIdx.x % kWarp; c < e; c += kWarp) sum += C(a.at(0, row % n, c)) * C(b.at(0, row % n, c));
    sum = warp_reduce<Sum>(sum);
    if (threadIdx.x % kWarp == 0) delta[row] = sum;
  }
}

// out[r] = sum over c of w(r, c) values[c], where rows are queries and columns keys, or the other way. With the weight
// p of attention, w is p; or, with `a` and `b`, whose product over their dimensions is the gradient of p,
// p (a b^T - delta) scale.
template <class T> struct WeightedSum {
  using C = compute_t<T>;
  Heads<T> out;
  Heads<const T> x, y, values, a, b;
  const C *lse, *delta;                                  // of queries
  int64_t heads, rows, columns, depth, inner, features;  // inner: of a and b; 0: there are none
  bool by_query, causal;
  C scale;
  __device__ C weight(int64_t head, int64_t r, int64_t c, C score, C gradient) const {
    const int64_t query = by_query ? r : c, key = by_query ? c : r;
    if (r >= rows || c >= columns || (causal && key > query)) return 0;
    const int64_t at = head * (by_query ? rows : columns) + query;
    const C p = Math::exp(score * scale - lse[at]);
    return inner ? p * (gradient - delta[at]) * scale : p;
  }
  // The columns that the rows from `row` on see.
  __device__ int64_t first(int64_t row) const { return causal && !by_query ? row / kGemmTile * kGemmTile : 0; }
  __device__ int64_t last(int64_t row) const {
    return causal && by_query && row + kGemmTile < columns ? row + kGemmTile : columns;
  }
};

template <class T> __global__ void __launch_bounds__(kGemmThreads) attention_sum_kernel(WeightedSum<T> w) {
  using C = compute_t<T>;
  SHARED_ARRAY(C, a_tile, [kGemmDepth][kGemmTile + 1]);
  SHARED_ARRAY(C, w_tile, [kGemmDepth][kGemmTile + 1]);
  const int ti = int(threadIdx.x) / 16, tj = int(threadIdx.x) % 16;
  const int64_t row_tiles = divide_up(w.rows, kGemmTile), feature_tiles = divide_up(w.features, kGemmTile);
  for (int64_t number = blockIdx.x; number < w.heads * row_tiles * feature_tiles; number += gridDim.x) {
    const int64_t head = number / feature_tiles / row_tiles, row = number / feature_tiles % row_tiles * kGemmTile,
                  feature = number % feature_tiles * kGemmTile;
    C sum[kPerThread][kPerThread] = {};
    for (int64_t column = w.first(row); column < w.last(row); column += kGemmTile) {
      Scores<C> s, g = {};
      multiply_rows(s, a_tile, w_tile, w.x.rows(head), w.y.rows(head), row, w.rows, column, w.columns, w.depth);
      if (w.inner)
        multiply_rows(g, a_tile, w_tile, w.a.rows(head), w.b.rows(head), row, w.rows, column, w.columns, w.inner);
#pragma unroll
      for (int j = 0; j < kPerThread; ++j) {  // the weights of 16 columns are the depth of a tile
        for (int i = 0; i < kPerThread; ++i)
          a_tile[tj][ti + 16 * i] = w.weight(head, row + ti + 16 * i, column + tj + 16 * j, s[i][j], g[i][j]);
        load_tile(w_tile, w.values.columns(head), 0, feature, w.features, column + 16 * j, w.columns);
        __syncthreads();
        multiply_tiles(sum, a_tile, w_tile, ti, tj);
        __syncthreads();
      }
    }
    for (int i = 0; i < kPerThread; ++i)
      for (int j = 0; j < kPerThread; ++j) {
        const int64_t r = row + ti + 16 * i, f = feature + tj + 16 * j;
        if (r < w.rows && f < w.features) w.out.of(head)[r * w.out.strides[2] + f * w.out.strides[3]] = T(sum[i][j]);
      }
  }
}

// As many blocks as there are tiles, or fill the device.
Grid tiles_of(Device device, int64_t heads, int64_t rows, int64_t features) {
  const int64_t tiles = heads * divide_up(rows, kGemmTile) * divide_up(features, kGemmTile);
  const int64_t most = int64_t(properties(device.index).multiprocessors) * 8;
  return {dim3(unsigned(tiles < most ? tiles : most)), dim3(kGemmThreads)};
}

template <class T> void sum_weighted(Device device, const WeightedSum<T>& w) {
  if (w.heads * w.rows * w.features > 0)
    launch<attention_sum_kernel<T>>(device, tiles_of(device, w.heads, w.rows, w.features), w);
}

}  // namespace

namespace {

AttentionSizes sizes_of(const View& q, const View& k, const View& v, double scale, bool causal) {
  return {q.dims[0] * q.dims[1], q.dims[2], k.dims[2], int(q.dims[3]), int(v.dims[3]), causal, scale};
}

}  // namespace

void attention_forward(View y, View lse, View q, View k, View v, double scale, bool causal) {
  const AttentionSizes s = sizes_of(q, k, v, scale, causal);
  if (s.heads * s.queries == 0) return;
  dispatch_float(q.dtype, [&]<class T>() {
    using C = compute_t<T>;
    using X = Heads<const T>;
    if constexpr (is_half_v<T>)
      if (forward_mma<T>(q.device, Heads<T>(y), lse.as<float>(), X(q), X(k), X(v), s)) return;
    launch<attention_lse_kernel<T>>(q.device, tiles_of(q.device, s.heads, s.queries, 1), lse.as<C>(), X(q), X(k), s);
    sum_weighted<T>(q.device, {Heads<T>(y),
                               X(q),
                               X(k),
                               X(v),
                               {},
                               {},
                               lse.as<C>(),
                               nullptr,
                               s.heads,
                               s.queries,
                               s.keys,
                               s.features,
                               0,
                               s.value_features,
                               true,
                               causal,
                               C(scale)});
  });
}

void attention_backward(View dq, View dk, View dv, View dy, View y, View lse, View q, View k, View v, double scale,
                        bool causal) {
  const AttentionSizes s = sizes_of(q, k, v, scale, causal);
  const int64_t heads = s.heads, n = s.queries, m = s.keys, d = s.features, e = s.value_features;
  dispatch_float(q.dtype, [&]<class T>() {
    using C = compute_t<T>;
    using X = Heads<const T>;
    const Tensor deltas({heads, n}, lse.dtype, q.device);
    C *const delta = View(deltas).as<C>(), *const l = lse.as<C>();
    const C by = C(scale);
    if (heads * n > 0)
      launch<attention_delta_kernel<T>>(q.device, covering(q.device, heads * n * kWarp), delta, X(y), X(dy), heads, n,
                                        e);
    if constexpr (is_half_v<T>)
      if (heads > 0 && backward_mma<T>(q.device, {Heads<T>(dk), Heads<T>(dv), X(k), X(v), X(q), X(dy), l, delta},
                                       {Heads<T>(dq), {}, X(q), X(dy), X(k), X(v), l, delta}, s))
        return;
    sum_weighted<T>(q.device,
                    {Heads<T>(dv), X(k), X(q), X(dy), {}, {}, l, delta, heads, m, n, d, 0, e, false, causal, by});
    sum_weighted<T>(q.device,
                    {Heads<T>(dk), X(k), X(q), X(q), X(v), X(dy), l, delta, heads, m, n, d, e, d, false, causal, by});
    sum_weighted<T>(q.device,
                    {Heads<T>(dq), X(q), X(k), X(k), X(dy), X(v), l, delta, heads, n, m, d, e, d, true, causal, by});
  });
}

}  // namespace ringtape::cuda
