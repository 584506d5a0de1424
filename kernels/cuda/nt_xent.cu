#include "kernels/nt_xent.h"

#include <algorithm>

#include "core/tensor.h"
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/matrix.cuh"
#include "kernels/reduce.h"

// A block has 64 rows of x and goes over a range of the rows of y, 64 at a time. Their scores are only in registers.
// The results of ranges are combined in a fixed order, so that they do not depend on the scheduling. Where f32 may be
// rounded to TF32, scores are products by tensor cores.
namespace ringtape::cuda {
namespace {

// (n, d) as an operand of a product along d, and along n.
template <class C>
struct Rows {
  const C* data;
  int64_t n, d;
  __device__ bool outer_first() const { return false; }
  __device__ C at(int64_t, int64_t i, int64_t p) const { return data[i * d + p]; }
};
template <class C>
struct Columns {
  const C* data;
  int64_t d;
  __device__ bool outer_first() const { return true; }
  __device__ C at(int64_t, int64_t i, int64_t p) const { return data[p * d + i]; }
};

template <class C>
using TileOf = C[kGemmDepth][kGemmTile + 1];
template <class C>
using Scores = C[kPerThread][kPerThread];  // of rows ti + 16 i and columns tj + 16 j of a tile

template <class C>
__device__ void compute_scores(Scores<C>& s, TileOf<C>& a, TileOf<C>& w, const Rows<C>& x, const Rows<C>& y,
                               int64_t row, int64_t column, int ti, int tj) {
  for (int i = 0; i < kPerThread; ++i)
    for (int j = 0; j < kPerThread; ++j) s[i][j] = 0;
  for (int64_t depth = 0; depth < x.d; depth += kGemmDepth) {
    load_tile(a, x, 0, row, x.n, depth, x.d);
    load_tile(w, y, 0, column, y.n, depth, x.d);
    __syncthreads();
    multiply_tiles(s, a, w, ti, tj);
    __syncthreads();
  }
}

// exp(top) sum is the sum of exp over some scores of a row. `positive` is the score of the other view, or -infinity if
// it is not among them.
template <class C>
struct RowSum { C top, sum, positive; };

struct AddRowSums {
  template <class A>
  static __device__ A identity() {
    const auto none = Max::identity<decltype(A::top)>();
    return {none, 0, none};
  }
  template <class A>
  static __device__ A combine(const A& a, const A& b) {
    const auto top = Max::combine(a.top, b.top), positive = Max::combine(a.positive, b.positive);
    if (top == Max::identity<decltype(A::top)>()) return {top, 0, positive};
    return {top, a.sum * Math::exp(a.top - top) + b.sum * Math::exp(b.top - top), positive};
  }
};

// part[q, i] is row i over the columns [q chunk, (q + 1) chunk).
template <class C>
__global__ void __launch_bounds__(kGemmThreads)
    row_sums_kernel(RowSum<C>* part, Rows<C> x, Rows<C> y, ViewPairs pairs, C scale, int64_t chunk) {
  SHARED_ARRAY(C, a_tile, [kGemmDepth][kGemmTile + 1]);
  SHARED_ARRAY(C, w_tile, [kGemmDepth][kGemmTile + 1]);
  const int ti = int(threadIdx.x) / 16, tj = int(threadIdx.x) % 16;
  const int64_t row_tiles = divide_up(x.n, kGemmTile), row = blockIdx.x % row_tiles * kGemmTile,
                q = blockIdx.x / row_tiles;
  const int64_t end = (q + 1) * chunk < y.n ? (q + 1) * chunk : y.n;
  RowSum<C> sums[kPerThread];
  for (RowSum<C>& sum : sums) sum = AddRowSums::identity<RowSum<C>>();
  for (int64_t column = q * chunk; column < end; column += kGemmTile) {
    Scores<C> s;
    compute_scores(s, a_tile, w_tile, x, y, row, column, ti, tj);
    for (int i = 0; i < kPerThread; ++i) {
      const int64_t r = row + ti + 16 * i, same = pairs.same(r), other = pairs.other(r);
      RowSum<C> here = AddRowSums::identity<RowSum<C>>();
      for (int j = 0; j < kPerThread; ++j) {
        const int64_t c = column + tj + 16 * j;
        s[i][j] = c < end && c != same ? s[i][j] * scale : Max::identity<C>();
        here.top = Max::combine(here.top, s[i][j]);
        if (c == other) here.positive = s[i][j];
      }
      if (here.top == Max::identity<C>()) continue;
      for (int j = 0; j < kPerThread; ++j) here.sum += Math::exp(s[i][j] - here.top);
      sums[i] = AddRowSums::combine(sums[i], here);
    }
  }
  for (int i = 0; i < kPerThread; ++i) {
    const RowSum<C> sum = warp_reduce<AddRowSums>(sums[i], 16);
    const int64_t r = row + ti + 16 * i;
    if (tj == 0 && r < x.n) part[q * x.n + r] = sum;
  }
}

template <class C>
__global__ void __launch_bounds__(256)
    row_losses_kernel(C* loss, C* lse, const RowSum<C>* part, int64_t chunks, int64_t rows) {
  for (int64_t r = thread_in_grid(); r < rows; r += threads_in_grid()) {
    RowSum<C> sum = part[r];
    for (int64_t q = 1; q < chunks; ++q) sum = AddRowSums::combine(sum, part[q * rows + r]);
    lse[r] = sum.top + Math::log(sum.sum);
    loss[r] = sum.top - sum.positive + Math::log(sum.sum);
  }
}

// The weight of row c of y in the gradient of row r of x.
template <class C>
struct PairWeight {
  const C *x_lse, *y_lse, *dloss;
  ViewPairs pairs;
  C scale;
  __device__ C operator()(C product, int64_t r, int64_t c) const {
    if (c == pairs.same(r)) return 0;
    const C score = product * scale, positive = c == pairs.other(r) ? C(1) : C(0);
    C weight = 0;
    if (x_lse) weight += Math::exp(score - x_lse[r]) - positive;
    if (y_lse) weight += Math::exp(score - y_lse[c]) - positive;
    return *dloss * scale / C(pairs.rows) * weight;
  }
};

// dx[q] is the contribution of the columns [q chunk, (q + 1) chunk).
template <class C>
__global__ void __launch_bounds__(kGemmThreads)
    gradient_kernel(C* dx, Rows<C> x, Rows<C> y, PairWeight<C> weight, int64_t chunk) {
  SHARED_ARRAY(C, a_tile, [kGemmDepth][kGemmTile + 1]);
  SHARED_ARRAY(C, w_tile, [kGemmDepth][kGemmTile + 1]);
  const int ti = int(threadIdx.x) / 16, tj = int(threadIdx.x) % 16;
  const int64_t row_tiles = divide_up(x.n, kGemmTile), row = blockIdx.x % row_tiles * kGemmTile,
                q = blockIdx.x / row_tiles;
  const int64_t end = (q + 1) * chunk < y.n ? (q + 1) * chunk : y.n;
  for (int64_t column = q * chunk; column < end; column += kGemmTile) {
    Scores<C> s;
    compute_scores(s, a_tile, w_tile, x, y, row, column, ti, tj);
    for (int i = 0; i < kPerThread; ++i)
      for (int j = 0; j < kPerThread; ++j) {
        const int64_t r = row + ti + 16 * i, c = column + tj + 16 * j;
        s[i][j] = r < x.n && c < end ? weight(s[i][j], r, c) : C(0);
      }
    for (int64_t first = 0; first < y.d; first += kGemmTile) {
      C sum[kPerThread][kPerThread] = {};
#pragma unroll
      for (int j = 0; j < kPerThread; ++j) {  // the weights of 16 columns are the depth of a tile
        for (int i = 0; i < kPerThread; ++i) a_tile[tj][ti + 16 * i] = s[i][j];
        load_tile(w_tile, Columns<C>{y.data, y.d}, 0, first, y.d, column + 16 * j, end);
        __syncthreads();
        multiply_tiles(sum, a_tile, w_tile, ti, tj);
        __syncthreads();
      }
      for (int i = 0; i < kPerThread; ++i)
        for (int j = 0; j < kPerThread; ++j) {
          const int64_t r = row + ti + 16 * i, c = first + tj + 16 * j;
          if (r >= x.n || c >= y.d) continue;
          C& to = dx[(q * x.n + r) * y.d + c];
          to = column == q * chunk ? sum[i][j] : to + sum[i][j];
        }
    }
  }
}

// Products of rows of y and x by tensor cores are not stored: the sums over the rows of y are left by tile.
struct ColumnOfScores {  // a row of x
  using Acc = RowSum<float>;
  static constexpr int kBytes = sizeof(Acc);
  int64_t same, other;
  float scale;
  Acc mine = AddRowSums::identity<Acc>();
  template <class Out>
  __device__ ColumnOfScores(const Out& out, int64_t column, int lane)
      : same(out.pairs.same(column + lane)), other(out.pairs.other(column + lane)), scale(out.scale) {}
  __device__ void add(const float* staged, int64_t first, int rows, int lane) {
    Acc here = AddRowSums::identity<Acc>();
    float s[16];
    for (int r = 0; r < 16; ++r) {
      s[r] = r < rows && first + r != same ? staged[r * kStagedRow + lane] * scale : Max::identity<float>();
      here.top = Max::combine(here.top, s[r]);
      if (r < rows && first + r == other) here.positive = s[r];
    }
    if (here.top == Max::identity<float>()) return;
    for (int r = 0; r < 16; ++r) here.sum += Math::exp(s[r] - here.top);
    mine = AddRowSums::combine(mine, here);
  }
  __device__ void leave(Acc* to, int lane) const { to[lane] = mine; }
  static __device__ Acc combine(const Acc& a, const Acc& b) { return AddRowSums::combine(a, b); }
};
struct SummedScores {
  using Element = float;
  using Sums = ColumnOfScores;
  RowSum<float>* part;  // (tiles, rows of x)
  int64_t rows;
  ViewPairs pairs;
  float scale;
  bool aligned() const { return true; }
  __device__ bool packed() const { return true; }
  __device__ void put(int64_t, int64_t, int64_t, int64_t, float) const {}
  __device__ void put_pack(int64_t, int64_t, int64_t, int64_t, const float*, Sums&) const {}
  __device__ void put_sums(int64_t tile, int64_t i, const Sums::Acc& sums) const { part[tile * rows + i] = sums; }
};

// Products of rows of x and of y from row `first` on become weights (rows of x, columns).
struct StoredWeights {
  using Element = float;
  using Sums = NoSums;
  float* to;
  int64_t columns, first;
  PairWeight<float> weight;
  bool aligned() const { return true; }
  __device__ bool packed() const { return true; }
  __device__ void put(int64_t, int64_t, int64_t, int64_t, float) const {}
  __device__ void put_pack(int64_t, int64_t, int64_t i, int64_t j, const float* products, NoSums&) const {
    Vec<float, 4> out;
    for (int k = 0; k < 4; ++k) out.x[k] = weight(products[k], i, first + j + k);
    store(to + i * columns + j, out);
  }
};

// (n, d) as an operand along d, or along n.
template <bool along_n>
PackedMatrix<float, along_n> operand(const float* data, int64_t n, int64_t d) {
  if constexpr (along_n) return {{data, 0, 1, d}, d, n};
  else return {{data, 0, d, 1}, n, d};
}

// Whether tensor cores computed it.
bool forward_by_tensor_cores(const View& loss, const View& lse, const View& x, const View& y, const ViewPairs& pairs,
                             float scale) {
  if (!has_tensor_cores<float>(x.device)) return false;
  const int64_t n = x.dims[0], m = y.dims[0], d = x.dims[1], tiles = divide_up(m, kMmaRows);
  const Tensor parts({tiles, n, 3}, DType::f32, x.device);
  RowSum<float>* const part = View(parts).as<RowSum<float>>();
  if (!gemm_mma<float>(x.device, operand<false>(y.as<float>(), m, d), operand<false>(x.as<float>(), n, d),
                       SummedScores{part, n, pairs, scale}, {1, m, n, d}))
    return false;
  launch<row_losses_kernel<float>>(x.device, covering(x.device, n), loss.as<float>(), lse.as<float>(), part, tiles, n);
  return true;
}

// The sum of `parts` (chunks, n, d).
void sum_parts(View dx, const Tensor& parts) {
  const int64_t n = dx.dims[0], d = dx.dims[1];
  dx.rank = 3;
  dx.dims[0] = 1, dx.dims[1] = n, dx.dims[2] = d;
  dx.strides[0] = n * d, dx.strides[1] = d, dx.strides[2] = 1;
  sum_forward(dx, parts);
}

// Weights for as many rows of y as a cache has room for, then their product with these. Whether it was done.
bool backward_by_tensor_cores(const View& dx, const View& x, const View& y, const PairWeight<float>& weight) {
  constexpr int64_t kTilesWanted = 256, kLeastDepth = 128, kWeights = 1 << 22;
  const int64_t n = x.dims[0], m = y.dims[0], d = x.dims[1];
  if (!has_tensor_cores<float>(x.device) || m % kPackOf<float> != 0) return false;
  const int64_t tiles = divide_up(n, kMmaRows) * divide_up(d, 128), chunks = std::max<int64_t>(kTilesWanted / tiles, 1);
  const int64_t chunk = divide_up(std::max(divide_up(m, chunks), kLeastDepth), kMostMmaDepth) * kMostMmaDepth;
  const int64_t at_once = std::max<int64_t>(kWeights / n / chunk, 1) * chunk;
  const Tensor weights({n, std::min(at_once, m)}, DType::f32, x.device);
  const Tensor parts({divide_up(m, chunk), n, d}, DType::f32, x.device);
  for (int64_t first = 0; first < m; first += at_once) {
    const int64_t count = std::min(at_once, m - first);
    const float* const rows = y.as<float>() + first * d;
    const StoredWeights of_pairs{View(weights).as<float>(), count, first, weight};
    const Parts<float> out{View(parts).as<float>() + first / chunk * n * d, 1, n, d};
    const bool done = gemm_mma<float>(x.device, operand<false>(x.as<float>(), n, d), operand<false>(rows, count, d),
                                      of_pairs, {1, n, count, d}) &&
                      gemm_mma<float>(x.device, operand<false>(of_pairs.to, n, count), operand<true>(rows, count, d),
                                      out, {1, n, d, count, chunk});
    if (!done) return false;
  }
  sum_parts(dx, parts);
  return true;
}

// Splits the columns into chunks of whole tiles, so that a GPU has enough blocks. Depends only on the shape, so that
// sums are the same on all GPUs.
struct Chunks {
  int64_t chunk, count;
  unsigned blocks;
  Chunks(int64_t rows, int64_t columns) {
    constexpr int64_t kBlocksWanted = 256, kLeastTiles = 2;
    const int64_t row_tiles = divide_up(rows, kGemmTile), column_tiles = divide_up(columns, kGemmTile);
    const int64_t wanted = std::max<int64_t>(kBlocksWanted / row_tiles, 1);
    chunk = std::max(divide_up(column_tiles, wanted), kLeastTiles) * kGemmTile;
    count = divide_up(columns, chunk);
    blocks = unsigned(row_tiles * count);
  }
};

template <class C>
void forward(const View& loss, const View& lse, const View& x, const View& y, const ViewPairs& pairs, C scale) {
  if constexpr (std::is_same_v<C, float>)
    if (forward_by_tensor_cores(loss, lse, x, y, pairs, scale)) return;
  const int64_t n = x.dims[0], m = y.dims[0], d = x.dims[1];
  const Chunks chunks(n, m);
  const Tensor parts({chunks.count, n, 3}, dtype_of<C>::value, x.device);
  RowSum<C>* const part = View(parts).as<RowSum<C>>();
  launch<row_sums_kernel<C>>(x.device, Grid{dim3(chunks.blocks), dim3(kGemmThreads)}, part, Rows<C>{x.as<C>(), n, d},
                             Rows<C>{y.as<C>(), m, d}, pairs, scale, chunks.chunk);
  launch<row_losses_kernel<C>>(x.device, covering(x.device, n), loss.as<C>(), lse.as<C>(), part, chunks.count, n);
}

template <class C>
void backward(const View& dx, const View& x, const View& y, const PairWeight<C>& weight) {
  if constexpr (std::is_same_v<C, float>)
    if (backward_by_tensor_cores(dx, x, y, weight)) return;
  const int64_t n = x.dims[0], m = y.dims[0], d = x.dims[1];
  const Chunks chunks(n, m);
  Tensor parts;
  if (chunks.count > 1) parts = Tensor({chunks.count, n, d}, dtype_of<C>::value, x.device);
  C* const to = parts.defined() ? View(parts).as<C>() : dx.as<C>();
  launch<gradient_kernel<C>>(x.device, Grid{dim3(chunks.blocks), dim3(kGemmThreads)}, to, Rows<C>{x.as<C>(), n, d},
                             Rows<C>{y.as<C>(), m, d}, weight, chunks.chunk);
  if (parts.defined()) sum_parts(dx, parts);
}

}  // namespace

void nt_xent_forward(View loss, View lse, View x, View y, ViewPairs pairs, double scale) {
  x.dtype == DType::f64 ? forward<double>(loss, lse, x, y, pairs, scale)
                        : forward<float>(loss, lse, x, y, pairs, float(scale));
}

void nt_xent_backward(View dx, View x, View y, View x_lse, View y_lse, View dloss, ViewPairs pairs, double scale) {
  const auto with = [&]<class C>() {
    backward<C>(dx, x, y, {x_lse.as<C>(), y_lse.as<C>(), dloss.as<C>(), pairs, C(scale)});
  };
  x.dtype == DType::f64 ? with.template operator()<double>() : with.template operator()<float>();
}

}  // namespace ringtape::cuda
