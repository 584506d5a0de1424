#include "kernels/nt_xent.h"

#include <algorithm>

#include "core/tensor.h"
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/gemm/matrix.cuh"
#include "kernels/cuda/math.cuh"
#include "kernels/reduce.h"

// A block has 64 rows of x and goes over a range of the rows of y, 64 at a time. Their scores are only in registers.
// Where f32 may be rounded to TF32, scores are products by tensor cores, of some rows of y at a time; only their
// gradients are stored. The results of ranges are combined in a fixed order, so that they do not depend on the
// scheduling.
namespace ringtape::cuda {
namespace {

// Embeddings (n, d) as an operand of a product along d, and along n.
template <class C> __host__ __device__ Matrix<C> rows_of(const C* data, int64_t d) { return {data, 0, d, 1}; }
template <class C> __host__ __device__ Matrix<C> columns_of(const C* data, int64_t d) { return {data, 0, 1, d}; }

// (n, d) and (m, d).
template <class C> struct Embeddings {
  const C *x, *y;
  int64_t n, m, d;
  Embeddings(const View& of_x, const View& of_y)
      : x(of_x.as<C>()), y(of_y.as<C>()), n(of_x.dims[0]), m(of_y.dims[0]), d(of_x.dims[1]) {}
};

template <class C> using TileOf = C[kGemmDepth][kGemmTile + 1];
template <class C> using Scores = C[kPerThread][kPerThread];  // of rows ti + 16 i and columns tj + 16 j of a tile

template <class C>
__device__ void compute_scores(Scores<C>& s, TileOf<C>& a, TileOf<C>& w, const Embeddings<C>& e, int64_t row,
                               int64_t column, int ti, int tj) {
  for (int i = 0; i < kPerThread; ++i)
    for (int j = 0; j < kPerThread; ++j) s[i][j] = 0;
  for (int64_t depth = 0; depth < e.d; depth += kGemmDepth) {
    load_tile(a, rows_of(e.x, e.d), 0, row, e.n, depth, e.d);
    load_tile(w, rows_of(e.y, e.d), 0, column, e.m, depth, e.d);
    __syncthreads();
    multiply_tiles(s, a, w, ti, tj);
    __syncthreads();
  }
}

// exp(top) sum is the sum of exp over some scores of a row. `positive` is the score of the other view, or -infinity if
// it is not among them.
template <class C> struct RowSum { C top, sum, positive; };

struct AddRowSums {
  template <class A> static __device__ A identity() {
    const auto none = Max::identity<decltype(A::top)>();
    return {none, 0, none};
  }
  template <class A> static __device__ A combine(const A& a, const A& b) {
    const auto top = Max::combine(a.top, b.top), positive = Max::combine(a.positive, b.positive);
    if (top == Max::identity<decltype(A::top)>()) return {top, 0, positive};
    return {top, a.sum * Math::exp(a.top - top) + b.sum * Math::exp(b.top - top), positive};
  }
};

// part[q, i] is row i over the columns [q chunk, (q + 1) chunk).
template <class C>
__global__ void __launch_bounds__(kGemmThreads)
    row_sums_kernel(RowSum<C>* part, Embeddings<C> e, ViewPairs pairs, C scale, int64_t chunk) {
  SHARED_ARRAY(C, a_tile, [kGemmDepth][kGemmTile + 1]);
  SHARED_ARRAY(C, w_tile, [kGemmDepth][kGemmTile + 1]);
  const int ti = int(threadIdx.x) / 16, tj = int(threadIdx.x) % 16;
  const int64_t row_tiles = divide_up(e.n, kGemmTile), row = blockIdx.x % row_tiles * kGemmTile,
                q = blockIdx.x / row_tiles;
  const int64_t end = (q + 1) * chunk < e.m ? (q + 1) * chunk : e.m;
  RowSum<C> sums[kPerThread];
  for (RowSum<C>& sum : sums) sum = AddRowSums::identity<RowSum<C>>();
  for (int64_t column = q * chunk; column < end; column += kGemmTile) {
    Scores<C> s;
    compute_scores(s, a_tile, w_tile, e, row, column, ti, tj);
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
    if (tj == 0 && r < e.n) part[q * e.n + r] = sum;
  }
}

// part[0] becomes the sum of all.
template <class C>
__global__ void __launch_bounds__(256) add_row_sums_kernel(RowSum<C>* part, int64_t parts, int64_t rows) {
  for (int64_t r = thread_in_grid(); r < rows; r += threads_in_grid())
    for (int64_t q = 1; q < parts; ++q) part[r] = AddRowSums::combine(part[r], part[q * rows + r]);
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

// The gradient by a score: the weight of row c of y in the gradient of row r of x.
template <class C> struct ScoreGradient {
  const C *x_lse, *y_lse, *dloss;
  ViewPairs pairs;
  C scale;
  struct Row {
    C g, lse;
    int64_t same, other;
  };
  __device__ Row row(int64_t r) const {
    return {*dloss * scale / C(pairs.rows), x_lse ? x_lse[r] : C(0), pairs.same(r), pairs.other(r)};
  }
  __device__ C operator()(const Row& row, C product, int64_t c) const {
    const C score = product * scale, positive = c == row.other ? C(1) : C(0);
    C sum = 0;
    if (c != row.same && x_lse) sum += Math::exp(score - row.lse) - positive;
    if (c != row.same && y_lse) sum += Math::exp(score - y_lse[c]) - positive;
    return row.g * sum;
  }
};

// dx[q] is the contribution of the columns [q chunk, (q + 1) chunk).
template <class C>
__global__ void __launch_bounds__(kGemmThreads)
    gradient_kernel(C* dx, Embeddings<C> e, ScoreGradient<C> gradient, int64_t chunk) {
  SHARED_ARRAY(C, a_tile, [kGemmDepth][kGemmTile + 1]);
  SHARED_ARRAY(C, w_tile, [kGemmDepth][kGemmTile + 1]);
  const int ti = int(threadIdx.x) / 16, tj = int(threadIdx.x) % 16;
  const int64_t row_tiles = divide_up(e.n, kGemmTile), row = blockIdx.x % row_tiles * kGemmTile,
                q = blockIdx.x / row_tiles;
  const int64_t end = (q + 1) * chunk < e.m ? (q + 1) * chunk : e.m;
  for (int64_t column = q * chunk; column < end; column += kGemmTile) {
    Scores<C> s;
    compute_scores(s, a_tile, w_tile, e, row, column, ti, tj);
    for (int i = 0; i < kPerThread; ++i) {
      const int64_t r = row + ti + 16 * i;
      const auto of_row = gradient.row(r < e.n ? r : 0);
      for (int j = 0; j < kPerThread; ++j) {
        const int64_t c = column + tj + 16 * j;
        s[i][j] = r < e.n && c < end ? gradient(of_row, s[i][j], c) : C(0);
      }
    }
    for (int64_t first = 0; first < e.d; first += kGemmTile) {
      C sum[kPerThread][kPerThread] = {};
#pragma unroll
      for (int j = 0; j < kPerThread; ++j) {  // the weights of 16 columns are the depth of a tile
        for (int i = 0; i < kPerThread; ++i) a_tile[tj][ti + 16 * i] = s[i][j];
        load_tile(w_tile, columns_of(e.y, e.d), 0, first, e.d, column + 16 * j, end);
        __syncthreads();
        multiply_tiles(sum, a_tile, w_tile, ti, tj);
        __syncthreads();
      }
      for (int i = 0; i < kPerThread; ++i)
        for (int j = 0; j < kPerThread; ++j) {
          const int64_t r = row + ti + 16 * i, c = first + tj + 16 * j;
          if (r >= e.n || c >= e.d) continue;
          C& to = dx[(q * e.n + r) * e.d + c];
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
      : same(out.pairs.same(column + lane) - out.first), other(out.pairs.other(column + lane) - out.first),
        scale(out.scale) {}
  __device__ void add(const float* staged, int64_t first, int rows, int lane) {
    Acc here = AddRowSums::identity<Acc>();
    float s[16];
#pragma unroll
    for (int r = 0; r < 16; ++r) {
      s[r] = r < rows && first + r != same ? staged[r * kStagedRow + lane] * scale : Max::identity<float>();
      here.top = Max::combine(here.top, s[r]);
      if (r < rows && first + r == other) here.positive = s[r];
    }
    if (here.top == Max::identity<float>()) return;
#pragma unroll
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
  int64_t rows, first;  // the first row of y
  ViewPairs pairs;
  float scale;
  bool aligned() const { return true; }
  __device__ bool packed() const { return true; }
  __device__ void put(int64_t, int64_t, int64_t, int64_t, float) const {}
  __device__ void put_pack(int64_t, int64_t, int64_t, int64_t, const float*, Sums&) const {}
  __device__ void put_sums(int64_t tile, int64_t i, const Sums::Acc& sums) const { part[tile * rows + i] = sums; }
};

// Products of rows of x and of `count` rows of y from `first` on become gradients by scores, in rows of `pitch` floats.
struct StoredGradients {
  using Element = float;
  using Sums = NoSums;
  float* to;
  int64_t first, count, pitch;
  ScoreGradient<float> gradient;
  bool aligned() const { return true; }
  __device__ bool packed() const { return true; }
  __device__ void put(int64_t, int64_t, int64_t, int64_t, float) const {}
  __device__ void put_pack(int64_t, int64_t, int64_t i, int64_t j, const float* products, NoSums&) const {
    const auto row = gradient.row(i);
    Vec<float, 4> out;
    for (int k = 0; k < 4; ++k) out.x[k] = j + k < count ? gradient(row, products[k], first + j + k) : 0.f;
    store(to + i * pitch + j, out);
  }
};

// What each chunk of the depth adds, in several products one after the other.
struct AddedParts : Parts<float> {
  bool more;
  __device__ void put(int64_t b, int64_t q, int64_t i, int64_t j, float sum) const {
    float* const to = at(b, q, i, j);
    *to = more ? *to + sum : sum;
  }
  __device__ void put_pack(int64_t b, int64_t q, int64_t i, int64_t j, const float* sums, NoSums&) const {
    Vec<float, 4> out = load<4>(sums);
    if (more) {
      const Vec<float, 4> before = load<4>(static_cast<const float*>(at(b, q, i, j)));
      for (int k = 0; k < 4; ++k) out.x[k] += before.x[k];
    }
    store(at(b, q, i, j), out);
  }
};

constexpr int64_t kMaxSums = 1 << 15, kMaxGradients = 1 << 22;  // stored at once: 384 KB and 16 MiB

PackedMatrix<float, false> along_d(const float* data, int64_t n, int64_t d) { return {rows_of(data, d), n, d}; }
PackedMatrix<float, true> along_n(const float* data, int64_t n, int64_t d) { return {columns_of(data, d), d, n}; }

bool for_tensor_cores(Device device, const Embeddings<float>& e) {
  return has_tensor_cores<float>(device) && e.d > 0 && along_d(e.x, e.n, e.d).packed() &&
         along_d(e.y, e.m, e.d).packed();
}

void forward_by_tensor_cores(const View& loss, const View& lse, const Embeddings<float>& e, const ViewPairs& pairs,
                             float scale) {
  const Device device = loss.device;
  const int64_t tiles = std::min(divide_up(e.m, kMmaRows), std::max<int64_t>(kMaxSums / e.n, 1));
  const Tensor parts({tiles + 1, e.n, 3}, DType::f32, device);
  RowSum<float>* const part = View(parts).as<RowSum<float>>();
  int64_t filled = 0;  // of these parts; the first one has those of all tiles before
  for (int64_t first = 0; first < e.m; first += tiles * kMmaRows) {
    if (filled > 0) launch<add_row_sums_kernel<float>>(device, covering(device, e.n), part, filled, e.n), filled = 1;
    const int64_t count = std::min(tiles * kMmaRows, e.m - first);
    gemm_mma<float>(device, along_d(e.y + first * e.d, count, e.d), along_d(e.x, e.n, e.d),
                    SummedScores{part + filled * e.n, e.n, first, pairs, scale}, {1, count, e.n, e.d});
    filled += divide_up(count, kMmaRows);
  }
  launch<row_losses_kernel<float>>(device, covering(device, e.n), loss.as<float>(), lse.as<float>(), part, filled, e.n);
}

// The sum of `parts` (chunks, n, d).
void sum_parts(View dx, const Tensor& parts) {
  const int64_t n = dx.dims[0], d = dx.dims[1];
  dx.rank = 3;
  dx.dims[0] = 1, dx.dims[1] = n, dx.dims[2] = d;
  dx.strides[0] = n * d, dx.strides[1] = d, dx.strides[2] = 1;
  sum_forward(dx, parts);
}

// The gradients by the scores of some rows of y, then their product with these; and so on.
void backward_by_tensor_cores(const View& dx, const Embeddings<float>& e, const ScoreGradient<float>& gradient) {
  constexpr int64_t kTilesWanted = 256, kLeastDepth = 128;
  const int64_t tiles = divide_up(e.n, kMmaRows) * divide_up(e.d, kMmaColumns);
  const int64_t most =
      std::min(std::max(kMaxGradients / e.n / kLeastDepth, int64_t{1}) * kLeastDepth, divide_up(e.m, 4) * 4);
  const int64_t wanted = std::max<int64_t>(kTilesWanted / tiles, 1),
                chunk = divide_up(std::max(divide_up(most, wanted), kLeastDepth), kMaxMmaDepth) * kMaxMmaDepth;
  const Tensor gradients({e.n, most}, DType::f32, dx.device);
  Tensor parts;
  if (most > chunk || aligned_width(4, dx.as<float>()) != 4)
    parts = Tensor({divide_up(most, chunk), e.n, e.d}, DType::f32, dx.device);
  float* const to = parts.defined() ? View(parts).as<float>() : dx.as<float>();
  for (int64_t first = 0; first < e.m; first += most) {
    const int64_t count = std::min(most, e.m - first), pitch = divide_up(count, 4) * 4;
    const float* const y = e.y + first * e.d;
    const StoredGradients stored{View(gradients).as<float>(), first, count, pitch, gradient};
    gemm_mma<float>(dx.device, along_d(e.x, e.n, e.d), along_d(y, count, e.d), stored, {1, e.n, count, e.d});
    gemm_mma<float>(dx.device, along_d(stored.to, e.n, pitch), along_n(y, count, e.d),
                    AddedParts{{to, 1, e.n, e.d}, first > 0}, {1, e.n, e.d, count, chunk});
  }
  if (parts.defined()) sum_parts(dx, parts);
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
void forward(const View& loss, const View& lse, const Embeddings<C>& e, const ViewPairs& pairs, C scale) {
  if constexpr (std::is_same_v<C, float>)
    if (for_tensor_cores(loss.device, e)) return forward_by_tensor_cores(loss, lse, e, pairs, scale);
  const Chunks chunks(e.n, e.m);
  const Tensor parts({chunks.count, e.n, 3}, dtype_of<C>::value, loss.device);
  RowSum<C>* const part = View(parts).as<RowSum<C>>();
  launch<row_sums_kernel<C>>(loss.device, Grid{dim3(chunks.blocks), dim3(kGemmThreads)}, part, e, pairs, scale,
                             chunks.chunk);
  launch<row_losses_kernel<C>>(loss.device, covering(loss.device, e.n), loss.as<C>(), lse.as<C>(), part, chunks.count,
                               e.n);
}

template <class C> void backward(const View& dx, const Embeddings<C>& e, const ScoreGradient<C>& gradient) {
  if constexpr (std::is_same_v<C, float>)
    if (for_tensor_cores(dx.device, e)) return backward_by_tensor_cores(dx, e, gradient);
  const Chunks chunks(e.n, e.m);
  Tensor parts;
  if (chunks.count > 1) parts = Tensor({chunks.count, e.n, e.d}, dtype_of<C>::value, dx.device);
  C* const to = parts.defined() ? View(parts).as<C>() : dx.as<C>();
  launch<gradient_kernel<C>>(dx.device, Grid{dim3(chunks.blocks), dim3(kGemmThreads)}, to, e, gradient, chunks.chunk);
  if (parts.defined()) sum_parts(dx, parts);
}

}  // namespace

void nt_xent_forward(View loss, View lse, View x, View y, ViewPairs pairs, double scale) {
  x.dtype == DType::f64 ? forward<double>(loss, lse, {x, y}, pairs, scale)
                        : forward<float>(loss, lse, {x, y}, pairs, float(scale));
}

void nt_xent_backward(View dx, View x, View y, View x_lse, View y_lse, View dloss, ViewPairs pairs, double scale) {
  const auto with = [&]<class C>() {
    backward<C>(dx, {x, y}, {x_lse.as<C>(), y_lse.as<C>(), dloss.as<C>(), pairs, C(scale)});
  };
  x.dtype == DType::f64 ? with.template operator()<double>() : with.template operator()<float>();
}

}  // namespace ringtape::cuda
