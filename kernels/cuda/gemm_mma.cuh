#pragma once
#include "kernels/cuda/async.cuh"
#include "kernels/cuda/gemm.cuh"
#include "kernels/cuda/vector.cuh"

// Products of 16-bit operands by tensor cores, for operands of which 8 neighbours lie together in memory. A block has a
// tile of results; its warps multiply one step of the depth while the next ones are copied to shared memory.
namespace ringtape::cuda {
namespace {

// An operand X of T has:
//   const T* data                         its memory, which is not read beyond what pack() says
//   static constexpr bool outer_first()   neighbours in memory are along the outer index, else along the depth
//   bool packed() const                   whether 8 of them always lie together, aligned to 16 bytes
//   Walk walk(b, i, p) const              along the depth, from there on:
//     const T* get(x) const               8 neighbours, or null: zeros
//     void advance(x, n)                  n indices further
// A result of Element has aligned(), whether its memory is, packed(), whether its rows are packs of 16 bytes, and
// put_pack(b, q, i, j, sums) for one.

// The Walk of an operand whose indices of the depth are equally far apart.
template <class T>
struct LinearWalk {
  const T* from;
  int64_t stride;
  template <class X>
  __device__ const T* get(const X&) const { return from; }
  template <class X>
  __device__ void advance(const X&, int n) { from += n * stride; }
};

constexpr int kMmaDepth = 32, kMmaStages = 3, kMmaThreads = 256, kWarpColumns = 32;
constexpr int kStagedRow = kWarpColumns + 4;  // floats

// Of kRows x kColumns results; a warp has kWarpRows x 32 of them.
template <int columns>
struct MmaTile {
  static constexpr int kRows = 128, kColumns = columns, kWarpsAside = kColumns / kWarpColumns,
                       kWarpRows = kRows * kWarpsAside * 32 / kMmaThreads;
};

// A tile of an operand: `outer` lines of the depth, or kMmaDepth lines along the outer index. The packs of a line are
// in an order of its own, so that the 8 rows of a matrix, and what 8 lanes copy, are in different banks.
template <int outer, bool outer_first>
struct MmaLines {
  static constexpr int kLines = outer_first ? kMmaDepth : outer, kLength = outer_first ? outer : kMmaDepth,
                       kElements = kLines * kLength;
  static_assert(kLength == 32 || kLength % 64 == 0);

  static __device__ int place(int line, int pack) {
    return line * kLength + (pack ^ (kLength == 32 ? line / 2 % 4 : line % 8)) * 8;
  }

  // A thread's packs of the tiles from (i, p) on along the depth; zero outside.
  template <class X>
  struct Loader {
    static constexpr int kPacks = kLength / 8, kMine = kLines * kPacks / kMmaThreads;
    typename X::Walk walks[kMine];
    bool inside[kMine];  // by the outer index
    __device__ Loader(const X& x, int64_t b, int64_t i, int64_t outer_size, int64_t p) {
#pragma unroll
      for (int mine = 0; mine < kMine; ++mine) {
        const int t = int(threadIdx.x) + mine * kMmaThreads, line = t / kPacks, pack = t % kPacks;
        const int64_t row = i + (outer_first ? pack * 8 : line), depth = p + (outer_first ? line : pack * 8);
        inside[mine] = row < outer_size;
        walks[mine] = x.walk(b, inside[mine] ? row : 0, depth);
      }
    }
    // Begins to copy the next tile, of which `left` indices of the depth are there.
    template <class T>
    __device__ void begin(T* tile, const X& x, int left) {
#pragma unroll
      for (int mine = 0; mine < kMine; ++mine) {
        const int t = int(threadIdx.x) + mine * kMmaThreads, line = t / kPacks, pack = t % kPacks;
        const bool there = inside[mine] && (outer_first ? line : pack * 8) < left;
        const T* const from = there ? walks[mine].get(x) : nullptr;
        cp_async<16>(tile + place(line, pack), from ? from : x.data, from ? 16 : 0);
        walks[mine].advance(x, kMmaDepth);
      }
    }
  };
  // The fragments of 16 outer indices and 16 of the depth: of a left operand, or two of a right one.
  template <class T>
  static __device__ void left(uint32_t (&a)[4], const T* tile, int i, int p, int lane) {
    if constexpr (outer_first)
      ldmatrix_trans(a, tile + place(p + lane / 16 * 8 + lane % 8, i / 8 + lane / 8 % 2));
    else ldmatrix(a, tile + place(i + lane % 16, p / 8 + lane / 16));
  }
  template <class T>
  static __device__ void right(uint32_t (&b)[4], const T* tile, int j, int p, int lane) {
    if constexpr (outer_first) ldmatrix_trans(b, tile + place(p + lane % 16, j / 8 + lane / 16));
    else ldmatrix(b, tile + place(j + lane / 16 * 8 + lane % 8, p / 8 + lane / 8 % 2));
  }
};

template <class T, int columns, class A, class W, class Out>
__global__ void __launch_bounds__(kMmaThreads, 1) gemm_mma_kernel(A a, W w, Out out, Product p) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  using Tile = MmaTile<columns>;
  using Left = MmaLines<Tile::kRows, A::outer_first()>;
  using Right = MmaLines<Tile::kColumns, W::outer_first()>;
  constexpr int kStage = Left::kElements + Right::kElements, kFragments = Tile::kWarpRows / 16;
  SHARED_DYN(T, tiles);
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  const int my_row = warp / Tile::kWarpsAside * Tile::kWarpRows, my_column = warp % Tile::kWarpsAside * kWarpColumns;
  const int64_t row_tiles = (p.m + Tile::kRows - 1) / Tile::kRows,
                column_tiles = (p.n + Tile::kColumns - 1) / Tile::kColumns, chunks = p.chunks();
  for (int64_t number = blockIdx.x; number < row_tiles * column_tiles * chunks * p.batch; number += gridDim.x) {
    const int row_tile = int(number / column_tiles % row_tiles), column_tile = int(number % column_tiles);
    const int q = int(number / (row_tiles * column_tiles) % chunks),
              b = int(number / (row_tiles * column_tiles * chunks));
    const int64_t row = int64_t{row_tile} * Tile::kRows, column = int64_t{column_tile} * Tile::kColumns;
    const int64_t begin = q * p.chunk, end = q + 1 == chunks ? p.k : begin + p.chunk;
    const int depth = int(end - begin), steps = (depth + kMmaDepth - 1) / kMmaDepth;
    typename Left::template Loader<A> load_left(a, b, row, p.m, begin);
    typename Right::template Loader<W> load_right(w, b, column, p.n, begin);
    const auto begin_step = [&](int step) {
      T* const stage = tiles + step % kMmaStages * kStage;
      const int left = depth - step * kMmaDepth;
      if (left > 0) load_left.begin(stage, a, left), load_right.begin(stage + Left::kElements, w, left);
      cp_async_commit();
    };
    for (int step = 0; step < kMmaStages - 1; ++step) begin_step(step);
    float sum[kFragments][kWarpColumns / 8][4] = {};
    for (int step = 0; step < steps; ++step) {
      cp_async_wait<kMmaStages - 2>();
      __syncthreads();  // the stage is complete, and the one before it has been used
      begin_step(step + kMmaStages - 1);
      const T* const left = tiles + step % kMmaStages * kStage;
#pragma unroll
      for (int k = 0; k < kMmaDepth; k += 16) {
        uint32_t columns_of_w[kWarpColumns / 16][4];
#pragma unroll
        for (int j = 0; j < kWarpColumns / 16; ++j)
          Right::right(columns_of_w[j], left + Left::kElements, my_column + j * 16, k, lane);
#pragma unroll
        for (int i = 0; i < kFragments; ++i) {
          uint32_t rows_of_a[4];
          Left::left(rows_of_a, left, my_row + i * 16, k, lane);
#pragma unroll
          for (int j = 0; j < kWarpColumns / 8; ++j) {
            const uint32_t(&pair)[4] = columns_of_w[j / 2];
            mma<T>(sum[i][j], rows_of_a, {pair[j % 2 * 2], pair[j % 2 * 2 + 1]});
          }
        }
      }
    }
    cp_async_wait<0>();
    __syncthreads();  // from here on a warp has 16 rows of floats for itself
    float* const staged = reinterpret_cast<float*>(tiles) + warp * 16 * kStagedRow;
#pragma unroll
    for (int i = 0; i < kFragments; ++i) {
      for (int j = 0; j < kWarpColumns / 8; ++j)
        for (int half = 0; half < 2; ++half) {
          float* const to = staged + (lane / 4 + half * 8) * kStagedRow + j * 8 + lane % 4 * 2;
          to[0] = sum[i][j][half * 2], to[1] = sum[i][j][half * 2 + 1];
        }
      __syncwarp();
      constexpr int kPack = kPackOf<typename Out::Element>, kPacks = kWarpColumns / kPack;
      for (int t = lane; t < 16 * kPacks; t += 32) {
        const int64_t r = row + my_row + i * 16 + t / kPacks, s = column + my_column + t % kPacks * kPack;
        const float* const from = staged + t / kPacks * kStagedRow + t % kPacks * kPack;
        if (r >= p.m || s >= p.n) continue;
        if (out.packed()) out.put_pack(b, q, r, s, from);
        else
          for (int64_t k = 0; k < kPack && s + k < p.n; ++k) out.put(b, q, r, s + k, from[k]);
      }
      __syncwarp();
    }
    __syncthreads();
  }
#endif
}

template <class T, int columns, class A, class W, class Out>
void launch_mma(Device device, const A& a, const W& w, const Out& out, const Product& p) {
  using Tile = MmaTile<columns>;
  constexpr size_t kBytes = sizeof(T) * kMmaStages *
                            (MmaLines<Tile::kRows, A::outer_first()>::kElements +
                             MmaLines<Tile::kColumns, W::outer_first()>::kElements);
  const int64_t tiles = (p.m + Tile::kRows - 1) / Tile::kRows * ((p.n + columns - 1) / columns) * p.chunks() * p.batch;
  const int64_t most = int64_t(properties(device.index).multiprocessors) * 8;
  launch<gemm_mma_kernel<T, columns, A, W, Out>>(
      device, Grid{dim3(unsigned(tiles < most ? tiles : most)), dim3(kMmaThreads), kBytes}, a, w, out, p);
}

// The product by tensor cores if the device has them and the operands are packed; whether it was.
template <class T, class A, class W, class Out>
bool gemm_mma(Device device, const A& a, const W& w, const Out& out, const Product& p) {
  if (properties(device.index).major < 8 || p.k > INT32_MAX) return false;
  if (!a.packed() || !w.packed() || !out.aligned()) return false;
  if (p.n > 64) launch_mma<T, 128>(device, a, w, out, p);
  else launch_mma<T, 64>(device, a, w, out, p);
  return true;
}

}  // namespace
}  // namespace ringtape::cuda
