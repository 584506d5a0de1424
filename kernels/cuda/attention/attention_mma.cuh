#pragma once
#include <bit>

#include "kernels/cuda/attention/heads.cuh"
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/math.cuh"

// Attention of 16-bit heads of up to 128 features by tensor cores. A warp has 16 rows; scores and what becomes of them
// stay in its registers, where the results of one product are an operand of the next.
namespace ringtape::cuda {
namespace {

constexpr int kHeadWarps = 4, kHeadThreads = 32 * kHeadWarps, kHeadRows = 16 * kHeadWarps;
constexpr float kLog2e = 1.44269504f;

// Rows of `dim` numbers in shared memory, as packs of 16 bytes. Those of the 8 rows of a matrix are in different banks.
template <class T, int dim> struct HeadTile {
  static constexpr int kPacks = dim / 8;
  static __device__ int place(int row, int pack) { return (row * kPacks + (pack ^ (row & 7))) * 8; }

  // Begins to copy `count` rows from `first` on; zeros beyond `rows` and `features`.
  static RT_OUTLINED void begin_copy(T* tile, int count, const Heads<const T>& from, int64_t head, int64_t first,
                                     int64_t rows, int features) {
    const T* const data = from.of(head);
    for (int t = int(threadIdx.x); t < count * kPacks; t += kHeadThreads) {
      const int row = t / kPacks, pack = t % kPacks;
      const bool inside = first + row < rows && pack * 8 < features;
      cp_async<16>(tile + place(row, pack), inside ? data + (first + row) * from.strides[2] + pack * 8 : data,
                   inside ? 16 : 0);
    }
  }
  // 16 rows from `row` on and 16 numbers from 16 k on, as a left operand.
  static RT_OUTLINED void left(uint32_t (&a)[4], const T* tile, int row, int k, int lane) {
    ldmatrix(a, tile + place(row + lane % 16, 2 * k + lane / 16));
  }
  // The same as two right operands whose columns are the rows, and whose depth they are.
  static RT_OUTLINED void across(uint32_t (&b)[4], const T* tile, int row, int k, int lane) {
    ldmatrix(b, tile + place(row + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
  }
  static RT_OUTLINED void along(uint32_t (&b)[4], const T* tile, int row, int k, int lane) {
    ldmatrix_trans(b, tile + place(row + lane % 16, 2 * k + lane / 16));
  }
};

template <class T> __device__ uint32_t pair_of(float x, float y) {
  return std::bit_cast<uint32_t>(Vec<T, 2>{{T(x), T(y)}});
}
// Columns 16 k to 16 k + 15 of a warp's results as a left operand.
template <class T, int n> __device__ void as_left(uint32_t (&a)[4], const float (&s)[n][4], int k) {
  a[0] = pair_of<T>(s[2 * k][0], s[2 * k][1]), a[1] = pair_of<T>(s[2 * k][2], s[2 * k][3]);
  a[2] = pair_of<T>(s[2 * k + 1][0], s[2 * k + 1][1]), a[3] = pair_of<T>(s[2 * k + 1][2], s[2 * k + 1][3]);
}

// s (16, 8 n) += 16 rows of x, from `row` on, by the rows of y.
template <class T, int dim, int n>
__device__ void multiply_by_rows(float (&s)[n][4], const T* x, int row, const T* y, int lane) {
  using Tile = HeadTile<T, dim>;
#pragma unroll 4
  for (int k = 0; k < dim / 16; ++k) {
    uint32_t a[4];
    Tile::left(a, x, row, k, lane);
#pragma unroll
    for (int j = 0; j < n / 2; ++j) {
      uint32_t b[4];
      Tile::across(b, y, 16 * j, k, lane);
      mma<T>(s[2 * j], a, {b[0], b[1]});
      mma<T>(s[2 * j + 1], a, {b[2], b[3]});
    }
  }
}
// sum (16, dim) += w (16, 8 n) y, with as many rows.
template <class T, int dim, int n>
__device__ void add_weighted(float (&sum)[dim / 8][4], const float (&w)[n][4], const T* y, int lane) {
#pragma unroll
  for (int k = 0; k < n / 2; ++k) {
    uint32_t a[4];
    as_left<T>(a, w, k);
#pragma unroll
    for (int j = 0; j < dim / 16; ++j) {
      uint32_t b[4];
      HeadTile<T, dim>::along(b, y, 16 * k, j, lane);
      mma<T>(sum[2 * j], a, {b[0], b[1]});
      mma<T>(sum[2 * j + 1], a, {b[2], b[3]});
    }
  }
}

// Writes a warp's 16 rows, times the factors of its rows g and g + 8, by way of as many rows of `staged`.
template <class T, int dim>
RT_OUTLINED void put_head_rows(const Heads<T>& out, int64_t head, int64_t first, int64_t rows, int features,
                               const float (&sum)[dim / 8][4], const float (&factor)[2], T* staged, int row, int lane) {
  using Tile = HeadTile<T, dim>;
  __syncwarp();
#pragma unroll
  for (int j = 0; j < dim / 16; ++j) {
    uint32_t packed[4];
    for (int r = 0; r < 4; ++r) {
      const float(&of)[4] = sum[2 * j + r / 2];
      packed[r] = pair_of<T>(of[r % 2 * 2] * factor[r % 2], of[r % 2 * 2 + 1] * factor[r % 2]);
    }
    stmatrix(staged + Tile::place(row + lane / 8 % 2 * 8 + lane % 8, 2 * j + lane / 16), packed);
  }
  __syncwarp();
  T* const to = out.of(head);
  for (int t = lane; t < 16 * Tile::kPacks; t += 32) {
    const int r = row + t / Tile::kPacks, pack = t % Tile::kPacks;
    if (first + r < rows && pack * 8 < features)
      store(to + (first + r) * out.strides[2] + pack * 8, load<8>(staged + Tile::place(r, pack)));
  }
}

// Shared memory: rows of queries; two stages of keys and of values.
template <int dim> constexpr int kForwardRows = kHeadRows + 4 * 64;

template <class T, int dim>
__global__ void __launch_bounds__(kHeadThreads, 2)
    attention_mma_forward(Heads<T> y, float* lse, Heads<const T> q, Heads<const T> k, Heads<const T> v,
                          AttentionSizes s) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  using Tile = HeadTile<T, dim>;
  constexpr int kKeys = 64;
  SHARED_DYN(T, queries);
  T *const keys = queries + kHeadRows * dim, *const values = keys + 2 * kKeys * dim;
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  const int64_t row_tiles = divide_up(s.queries, kHeadRows);
  const float factor = float(s.scale) * kLog2e;
  for (int64_t number = blockIdx.x; number < s.heads * row_tiles; number += gridDim.x) {
    const int64_t head = number / row_tiles, row = number % row_tiles * kHeadRows;
    const int64_t seen = s.causal && row + kHeadRows < s.keys ? row + kHeadRows : s.keys;
    const int tiles = int(divide_up(seen, kKeys));
    const auto begin_tile = [&](int tile) {
      if (tile < tiles) {
        Tile::begin_copy(keys + tile % 2 * kKeys * dim, kKeys, k, head, int64_t{tile} * kKeys, s.keys, s.features);
        Tile::begin_copy(values + tile % 2 * kKeys * dim, kKeys, v, head, int64_t{tile} * kKeys, s.keys,
                         s.value_features);
      }
      cp_async_commit();
    };
    Tile::begin_copy(queries, kHeadRows, q, head, row, s.queries, s.features);
    begin_tile(0);
    float sum[dim / 8][4] = {}, top[2], total[2] = {};
    top[0] = top[1] = Max::identity<float>();
    for (int tile = 0; tile < tiles; ++tile) {
      begin_tile(tile + 1);
      cp_async_wait<1>();
      __syncthreads();
      float w[kKeys / 8][4] = {};
      multiply_by_rows<T, dim>(w, queries, 16 * warp, keys + tile % 2 * kKeys * dim, lane);
      const int64_t column = int64_t{tile} * kKeys, limit = s.keys - column;
      if (limit < kKeys || (s.causal && column + kKeys > row)) {
#pragma unroll
        for (int j = 0; j < kKeys / 8; ++j)
          for (int i = 0; i < 4; ++i) {
            const int c = 8 * j + lane % 4 * 2 + i % 2;
            const int64_t r = row + 16 * warp + lane / 4 + i / 2 * 8;
            if (c >= limit || (s.causal && column + c > r)) w[j][i] = Max::identity<float>();
          }
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {  // rows g and g + 8
        float largest = Max::identity<float>();
#pragma unroll
        for (int j = 0; j < kKeys / 8; ++j)
          largest = Max::combine(largest, Max::combine(w[j][2 * half], w[j][2 * half + 1]));
        const float before = top[half];
        top[half] = Max::combine(before, warp_reduce<Max>(largest, 4));
        const float shrunk = Math::exp2((before - top[half]) * factor);
        float here = 0;
#pragma unroll
        for (int j = 0; j < kKeys / 8; ++j)
          for (int i = 2 * half; i < 2 * half + 2; ++i)
            w[j][i] = Math::exp2((w[j][i] - top[half]) * factor), here += w[j][i];
        total[half] = total[half] * shrunk + here;
#pragma unroll
        for (int j = 0; j < dim / 8; ++j) sum[j][2 * half] *= shrunk, sum[j][2 * half + 1] *= shrunk;
      }
      add_weighted<T, dim>(sum, w, values + tile % 2 * kKeys * dim, lane);
      __syncthreads();
    }
    cp_async_wait<0>();
    __syncthreads();  // without keys nobody has waited for the queries
    float inverse[2];
    for (int half = 0; half < 2; ++half) {
      const float all = warp_reduce<Sum>(total[half], 4);
      inverse[half] = s.keys ? 1 / all : 0.f;
      const int64_t r = row + 16 * warp + lane / 4 + 8 * half;
      if (lane % 4 == 0 && r < s.queries) lse[head * s.queries + r] = (top[half] * factor + Math::log2(all)) / kLog2e;
    }
    put_head_rows<T, dim>(y, head, row, s.queries, s.value_features, sum, inverse, queries, 16 * warp, lane);
    __syncthreads();
  }
#endif
}

// Gradients. Rows are keys: of k, with x k and x2 v and the columns y q and y2 dy, and of v; or queries: of q, with x
// q, x2 dy, y k and y2 v.
template <class T> struct HeadGradients {
  Heads<T> of_x, of_x2;
  Heads<const T> x, x2, y, y2;
  const float *lse, *delta;  // of queries
};
template <int dim> constexpr int kGradientColumns = dim == 64 ? 64 : 32;
template <int dim> constexpr int kGradientRows = 2 * kHeadRows + 4 * kGradientColumns<dim>;

template <class T, int dim, bool of_keys>
__global__ void __launch_bounds__(kHeadThreads, 2) attention_mma_backward(HeadGradients<T> g, AttentionSizes s) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  using Tile = HeadTile<T, dim>;
  constexpr int kColumns = kGradientColumns<dim>;
  SHARED_DYN(T, x);
  T *const x2 = x + kHeadRows * dim, *const y = x2 + kHeadRows * dim, *const y2 = y + 2 * kColumns * dim;
  SHARED_ARRAY(float, of_columns, [2][2][64]);  // lse and delta of the columns of a stage
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  const int64_t rows = of_keys ? s.keys : s.queries, columns = of_keys ? s.queries : s.keys;
  const int64_t row_tiles = divide_up(rows, kHeadRows);
  const float scale = float(s.scale), factor = scale * kLog2e;
  for (int64_t number = blockIdx.x; number < s.heads * row_tiles; number += gridDim.x) {
    const int64_t head = number / row_tiles, row = number % row_tiles * kHeadRows;
    const int64_t seen = s.causal && !of_keys && row + kHeadRows < columns ? row + kHeadRows : columns;
    const int first = s.causal && of_keys ? int(row / kColumns) : 0, end = int(divide_up(seen, kColumns));
    const auto begin_tile = [&](int tile) {
      if (tile < end) {
        const int64_t column = int64_t{tile} * kColumns;
        Tile::begin_copy(y + tile % 2 * kColumns * dim, kColumns, g.y, head, column, columns, s.features);
        Tile::begin_copy(y2 + tile % 2 * kColumns * dim, kColumns, g.y2, head, column, columns, s.value_features);
        if constexpr (of_keys) {
          const int c = int(threadIdx.x) % kColumns;
          if (threadIdx.x < 2 * kColumns) {
            const bool is_delta = int(threadIdx.x) >= kColumns, inside = column + c < columns;
            const float* const from = is_delta ? g.delta : g.lse;
            of_columns[tile % 2][is_delta][c] = inside ? from[head * columns + column + c] : 0.f;
          }
        }
      }
      cp_async_commit();
    };
    Tile::begin_copy(x, kHeadRows, g.x, head, row, rows, s.features);
    Tile::begin_copy(x2, kHeadRows, g.x2, head, row, rows, s.value_features);
    begin_tile(first);
    float of_row[2][2] = {};  // lse and delta of rows g and g + 8
    if constexpr (!of_keys)
      for (int half = 0; half < 2; ++half) {
        const int64_t r = row + 16 * warp + lane / 4 + 8 * half;
        if (r < rows) of_row[0][half] = g.lse[head * rows + r], of_row[1][half] = g.delta[head * rows + r];
      }
    float sum[dim / 8][4] = {}, sum2[of_keys ? dim / 8 : 1][4] = {};
    for (int tile = first; tile < end; ++tile) {
      begin_tile(tile + 1);
      cp_async_wait<1>();
      __syncthreads();
      const int stage = tile % 2;
      float p[kColumns / 8][4] = {}, d[kColumns / 8][4] = {};
      multiply_by_rows<T, dim>(p, x, 16 * warp, y + stage * kColumns * dim, lane);
      multiply_by_rows<T, dim>(d, x2, 16 * warp, y2 + stage * kColumns * dim, lane);
#pragma unroll
      for (int j = 0; j < kColumns / 8; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int c = 8 * j + lane % 4 * 2 + i % 2;
          const int64_t column = int64_t{tile} * kColumns + c, r = row + 16 * warp + lane / 4 + i / 2 * 8;
          const bool hidden = column >= columns || (s.causal && (of_keys ? r > column : column > r));
          const float lse = of_keys ? of_columns[stage][0][c] : of_row[0][i / 2],
                      delta = of_keys ? of_columns[stage][1][c] : of_row[1][i / 2];
          const float weight = hidden ? 0.f : Math::exp2(p[j][i] * factor - lse * kLog2e);
          p[j][i] = weight, d[j][i] = hidden ? 0.f : weight * (d[j][i] - delta) * scale;
        }
      add_weighted<T, dim>(sum, d, y + stage * kColumns * dim, lane);
      if constexpr (of_keys) add_weighted<T, dim>(sum2, p, y2 + stage * kColumns * dim, lane);
      __syncthreads();
    }
    cp_async_wait<0>();
    __syncthreads();
    put_head_rows<T, dim>(g.of_x, head, row, rows, s.features, sum, {1.f, 1.f}, x, 16 * warp, lane);
    if constexpr (of_keys)
      put_head_rows<T, dim>(g.of_x2, head, row, rows, s.value_features, sum2, {1.f, 1.f}, x2, 16 * warp, lane);
    __syncthreads();
  }
#endif
}

// Whether all heads are rows of whole packs.
template <class... X> bool packed_heads(const X&... heads) {
  const auto packed = [](const auto& x) {
    return x.strides[3] == 1 && x.strides[2] % 8 == 0 && x.strides[1] % 8 == 0 && x.strides[0] % 8 == 0 &&
           reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
  };
  return (packed(heads) && ...);
}
template <class T> bool fits_tensor_cores(Device device, const AttentionSizes& s) {
  return has_tensor_cores<T>(device) && s.features <= 128 && s.value_features <= 128 && s.features % 8 == 0 &&
         s.value_features % 8 == 0 && s.value_features > 0;
}

inline Grid grid_of_heads(Device device, int64_t heads, int64_t rows, size_t bytes) {
  const int64_t tiles = heads * divide_up(rows, kHeadRows),
                most = int64_t(properties(device.index).multiprocessors) * 8;
  return {dim3(unsigned(tiles < most ? tiles : most)), dim3(kHeadThreads), bytes};
}

template <class F> void with_dim(const AttentionSizes& s, F&& f) {
  if (s.features <= 64 && s.value_features <= 64) f.template operator()<64>();
  else f.template operator()<128>();
}

// Whether tensor cores did it.
template <class T>
bool forward_mma(Device device, const Heads<T>& y, float* lse, const Heads<const T>& q, const Heads<const T>& k,
                 const Heads<const T>& v, const AttentionSizes& s) {
  if (!fits_tensor_cores<T>(device, s) || !packed_heads(y, q, k, v)) return false;
  with_dim(s, [&]<int dim>() {
    launch<attention_mma_forward<T, dim>>(
        device, grid_of_heads(device, s.heads, s.queries, sizeof(T) * dim * kForwardRows<dim>), y, lse, q, k, v, s);
  });
  return true;
}
template <class T>
bool backward_mma(Device device, const HeadGradients<T>& of_keys, const HeadGradients<T>& of_queries,
                  const AttentionSizes& s) {
  if (!fits_tensor_cores<T>(device, s) || !packed_heads(of_keys.of_x, of_keys.of_x2, of_keys.x, of_keys.x2) ||
      !packed_heads(of_queries.of_x, of_queries.x, of_queries.x2))
    return false;
  with_dim(s, [&]<int dim>() {
    constexpr size_t kBytes = sizeof(T) * dim * kGradientRows<dim>;
    if (s.keys > 0)
      launch<attention_mma_backward<T, dim, true>>(device, grid_of_heads(device, s.heads, s.keys, kBytes), of_keys, s);
    if (s.queries > 0)
      launch<attention_mma_backward<T, dim, false>>(device, grid_of_heads(device, s.heads, s.queries, kBytes),
                                                    of_queries, s);
  });
  return true;
}

}  // namespace
}  // namespace ringtape::cuda
