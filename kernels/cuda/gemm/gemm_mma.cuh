#pragma once
#include <array>
#include <bit>
#include <type_traits>

#include "kernels/arithmetic.h"
#include "kernels/cuda/gemm/async.cuh"
#include "kernels/cuda/gemm/gemm.cuh"
#include "kernels/cuda/gemm/one_tap.cuh"
#include "kernels/cuda/vector.cuh"

// Products by tensor cores of 16-bit operands and, with Arithmetic::tf32, of floats rounded to TF32, for operands of
// which packs of 16 bytes, 8 or 4 neighbours, lie together in memory. A block has a tile of results; its warps multiply
// one step of the depth while the next ones are copied to shared memory.
namespace ringtape::cuda {
namespace {

// An operand X of T has:
//   const T* data                         its memory, which is not read beyond what pack() says
//   static constexpr bool outer_first()   neighbours in memory are along the outer index, else along the depth
//   bool packed() const                   whether a pack of them always lies together, aligned to 16 bytes
//   Walk walk(b, i, p) const              along the depth, from there on:
//     const T* get(x) const               a pack, or null: zeros
//     void advance(x, n)                  n indices further
// If each step of the depth is of one tap of a window, it may be a OneTap<X> (one_tap.cuh) instead.
//
// It may be a function of its memory, by channel: the index along the neighbours modulo channels(), a multiple of the
// tiles' depth. What get() says to be zero stays zero. It then has:
//   static constexpr int kValues          floats of a channel, which a block computes once: values(c, to, step)
//   transform(pack, values)               in place; values[v][i] of neighbour i
//
// A result of Element has aligned(), whether its memory is, packed(), whether its rows are packs of 16 bytes, and
// put_pack(b, q, i, j, sums, its) for one. Its Sums are over the rows of a tile:
//   Sums(result, column, lane)            of a lane of the warp whose columns begin there, of which it writes packs
//   void add(staged, first, rows, lane)   column `lane` of `rows` rows of floats, from row `first` of the result on
//   void leave(to, lane)                  those of the warp's columns; Sums::combine adds them up
// and put_sums(tile, column, its) takes them. NoSums has none.

// The Walk of an operand whose indices of the depth are equally far apart.
template <class T> struct LinearWalk {
  const T* from;
  int64_t stride;
  template <class X> __device__ const T* get(const X&) const { return from; }
  template <class X> __device__ void advance(const X&, int n) { from += n * stride; }
};

template <class X>
concept Transformed = requires {
  X::kValues;
};

struct NoSums {
  static constexpr int kBytes = 0;
  template <class Out> __device__ NoSums(const Out&, int64_t, int) {}
};

constexpr int kMmaStages = 3, kMmaThreads = 256, kWarpColumns = 32;
template <class T> constexpr int kMmaDepth = 4 * kPackOf<T>;
constexpr int kMaxMmaDepth = kMmaDepth<bf16>;
template <class T> constexpr bool kHasMma = is_half_v<T> || std::is_same_v<T, float>;
constexpr int kStagedRow = kWarpColumns + 4;  // floats

// A warp has kWarpRows x 32 of its results.
template <int rows, int columns> struct MmaTile {
  static constexpr int kRows = rows, kColumns = columns, kWarpsAside = kColumns / kWarpColumns,
                       kWarpRows = kRows * kWarpsAside * 32 / kMmaThreads;
};
constexpr int kMmaRows = 128, kMmaColumns = 128;  // at most; kMmaRows of all tiles but those of few rows
template <class T> constexpr int kFours = kPackOf<T> / 4;

// A tile of an operand: `outer` lines of the depth, or kMmaDepth lines along the outer index. The packs of a line are
// in an order of its own, so that the 8 rows of a matrix, what 8 lanes copy, and the floats that a warp reads from 4
// lines are in different banks.
template <class T, int outer, bool outer_first> struct MmaLines {
  static constexpr int kLines = outer_first ? kMmaDepth<T> : outer, kLength = outer_first ? outer : kMmaDepth<T>,
                       kElements = kLines * kLength, kPack = kPackOf<T>, kPacks = kLength / kPack;
  static_assert(kPacks == 4 || kPacks % 8 == 0);

  static __device__ int place(int line, int pack) {
    const int order = kPacks == 4 ? line / 2 % 4 : is_half_v<T> ? line % 8 : line % 4 * 2;
    return line * kLength + (pack ^ order) * kPack;
  }

  // A thread's packs of the tiles from (i, p) on along the depth; zero outside.
  template <class X> struct Loader {
    static constexpr int kMine = kLines * kPacks / kMmaThreads;
    std::conditional_t<ByTap<X>, Spot<T>, typename X::Walk> walks[kMine];
    Tap tap{};                              // of all of them
    bool inside[kMine];                     // by the outer index
    int channels[outer_first ? kMine : 1];  // of the first neighbour of a pack, or of the next tile to transform
    unsigned there = 0;                     // a bit per pack of the stages
    RT_OUTLINED Loader(const X& x, int64_t b, int64_t i, int64_t outer_size, int64_t p) {
#pragma unroll
      for (int mine = 0; mine < kMine; ++mine) {
        const int64_t row = i + (outer_first ? pack(mine) * kPack : line(mine)),
                      depth = p + (outer_first ? line(mine) : pack(mine) * kPack);
        inside[mine] = row < outer_size;
        if constexpr (ByTap<X>) {
          walks[mine] = x.spot(b, inside[mine] ? row : 0, outer_first ? line(mine) : pack(mine) * kPack);
          if (!inside[mine]) walks[mine].taps = 0;
        } else walks[mine] = x.walk(b, inside[mine] ? row : 0, depth);
        if constexpr (Transformed<X>)
          if (outer_first || mine == 0) channels[mine] = int((outer_first ? row : p) % x.channels());
      }
      if constexpr (ByTap<X>) tap = x.tap();
    }
    static __device__ int line(int mine) { return (int(threadIdx.x) + mine * kMmaThreads) / kPacks; }
    static __device__ int pack(int mine) { return (int(threadIdx.x) + mine * kMmaThreads) % kPacks; }
    // Begins to copy the next tile, of which `left` indices of the depth are there.
    RT_OUTLINED void begin(T* tile, const X& x, int left, int stage) {
#pragma unroll
      for (int mine = 0; mine < kMine; ++mine) {
        T* const to = tile + place(line(mine), pack(mine));
        bool found;
        if constexpr (ByTap<X>) {
          found = walks[mine].taps & tap.bit;
          cp_async<16>(to, found ? walks[mine].at + tap.offset : x.data, found ? 16 : 0);
        } else {
          const bool in_depth = (outer_first ? line(mine) : pack(mine) * kPack) < left;
          const T* const from = inside[mine] && in_depth ? walks[mine].get(x) : nullptr;
          found = from;
          cp_async<16>(to, from ? from : x.data, from ? 16 : 0);
          walks[mine].advance(x, kMmaDepth<T>);
        }
        if constexpr (Transformed<X>) {
          const unsigned bit = 1u << (stage * kMine + mine);
          there = found ? there | bit : there & ~bit;
        }
      }
      if constexpr (ByTap<X>) x.advance(tap, kMmaDepth<T>);
    }
    // Transforms what this thread has copied of the next tile; `values` as in values_of().
    RT_OUTLINED void transform(T* tile, const X& x, const float* values, int stage) {
#pragma unroll
      for (int mine = 0; mine < kMine; ++mine) {
        T* const at = tile + place(line(mine), pack(mine));
        const int channel = outer_first ? channels[mine] : channels[0] + pack(mine) * kPack;
        float of_channels[X::kValues][kPack];
#pragma unroll
        for (int v = 0; v < X::kValues; ++v)
#pragma unroll
          for (int four = 0; four < kFours<T>; ++four) {
            const Vec<float, 4> x4 = load<4>(values + ((kFours<T> * v + four) * x.channels() + channel) / kFours<T>);
#pragma unroll
            for (int i = 0; i < 4; ++i) of_channels[v][four * 4 + i] = x4.x[i];
          }
        Vec<T, kPack> packed = load<kPack>(at);
        x.transform(packed, of_channels);
        auto words = std::bit_cast<std::array<uint32_t, sizeof packed / 4>>(packed);  // else 16 bits at a time
        const uint32_t kept = there >> (stage * kMine + mine) & 1 ? ~0u : 0;
        for (uint32_t& word : words) word &= kept;
        store(at, std::bit_cast<Vec<T, kPack>>(words));
      }
      if constexpr (!outer_first)
        if ((channels[0] += kMmaDepth<T>) == x.channels()) channels[0] = 0;
    }
  };
  // The fragments of 16 outer indices and half a step of the depth: of a left operand, or two of a right one.
  static RT_OUTLINED void left(uint32_t (&a)[4], const T* tile, int i, int p, int lane) {
    if constexpr (!outer_first) ldmatrix(a, tile + place(i + lane % 16, p / kPack + lane / 16));
    else if constexpr (is_half_v<T>)
      ldmatrix_trans(a, tile + place(p + lane / 16 * 8 + lane % 8, i / 8 + lane / 8 % 2));
    else
      for (int r = 0; r < 4; ++r) a[r] = bits(tile, p + r / 2 * 4 + lane % 4, i + r % 2 * 8 + lane / 4);
    round(a);
  }
  static RT_OUTLINED void right(uint32_t (&b)[4], const T* tile, int j, int p, int lane) {
    if constexpr (!outer_first) ldmatrix(b, tile + place(j + lane / 16 * 8 + lane % 8, p / kPack + lane / 8 % 2));
    else if constexpr (is_half_v<T>) ldmatrix_trans(b, tile + place(p + lane % 16, j / 8 + lane / 16));
    else
      for (int r = 0; r < 4; ++r) b[r] = bits(tile, p + r % 2 * 4 + lane % 4, j + r / 2 * 8 + lane / 4);
    round(b);
  }
  // Of floats, which ldmatrix does not transpose.
  static __device__ uint32_t bits(const T* tile, int line, int column) {
    return std::bit_cast<uint32_t>(load<1>(tile + place(line, column / kPack) + column % kPack));
  }
  static __device__ void round(uint32_t (&x)[4]) {
    if constexpr (!is_half_v<T>)
      for (uint32_t& of : x) of = to_tf32(of);
  }
};

// The values of an operand's channels, one after the other; of each first those of the first four of all packs, then
// those of the next four, so that neighbouring packs are in different banks. Returns the first float after them.
template <class T, class X> __device__ float* values_of(const X& x, float* values) {
  if constexpr (Transformed<X>) {
    const int part = x.channels() / kFours<T>;
    for (int t = int(threadIdx.x); t < x.channels(); t += kMmaThreads)
      x.values(t % part / 4 * kPackOf<T> + t / part * 4 + t % 4, values + t, x.channels());
    values += X::kValues * x.channels();
  }
  return values;
}
template <class X> size_t values_bytes(const X& x) {
  if constexpr (Transformed<X>) return sizeof(float) * size_t(X::kValues) * size_t(x.channels());
  else return 0;
}

// Elements of a stage, and of its left operand.
template <class T, class Tile, class A, class W> struct MmaStage {
  using Left = MmaLines<T, Tile::kRows, A::outer_first()>;
  using Right = MmaLines<T, Tile::kColumns, W::outer_first()>;
  static constexpr int kLeft = Left::kElements, kElements = kLeft + Right::kElements;
};

template <class T> __device__ void multiply(float (&sum)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  if constexpr (is_half_v<T>) mma<T>(sum, a, b);
  else mma_tf32(sum, a, b);
}

// Writes 16 rows, from `first` on, of a warp's columns from `column` on: by way of `staged`, so that a lane has a pack.
template <class Out, class Sums>
RT_OUTLINED void put_rows(const Out& out, Sums& sums, const float (&sum)[kWarpColumns / 8][4], float* staged, int b,
                          int q, int64_t first, int64_t rows, int64_t column, int64_t columns, int lane) {
  constexpr int kPack = kPackOf<typename Out::Element>, kPacks = kWarpColumns / kPack;
  for (int j = 0; j < kWarpColumns / 8; ++j)
    for (int half = 0; half < 2; ++half) {
      float* const to = staged + (lane / 4 + half * 8) * kStagedRow + j * 8 + lane % 4 * 2;
      to[0] = sum[j][half * 2], to[1] = sum[j][half * 2 + 1];
    }
  __syncwarp();
  for (int t = lane; t < 16 * kPacks; t += 32) {
    const int64_t r = first + t / kPacks, s = column + t % kPacks * kPack;
    const float* const from = staged + t / kPacks * kStagedRow + t % kPacks * kPack;
    if (r >= rows || s >= columns) continue;
    if (out.packed()) out.put_pack(b, q, r, s, from, sums);
    else
      for (int64_t k = 0; k < kPack && s + k < columns; ++k) out.put(b, q, r, s + k, from[k]);
  }
  if constexpr (Sums::kBytes > 0) sums.add(staged, first, int(rows - first < 16 ? rows - first : 16), lane);
  __syncwarp();
}

// Blocks of a multiprocessor: two hide what each does before and after its steps, where 128 registers are enough.
template <class Tile, class A, class W>
constexpr int kMmaBlocks = Tile::kColumns == 64 && ByTap<A> && !Transformed<A> && !ByTap<W> ? 2 : 1;

template <class T, class Tile, class A, class W, class Out>
__global__ void __launch_bounds__(kMmaThreads, kMmaBlocks<Tile, A, W>) gemm_mma_kernel(A a, W w, Out out, Product p) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  using Stage = MmaStage<T, Tile, A, W>;
  using Left = typename Stage::Left;
  using Right = typename Stage::Right;
  using Sums = typename Out::Sums;
  constexpr int kDepth = kMmaDepth<T>, kFragments = Tile::kWarpRows / 16;
  constexpr bool kTransforms = Transformed<A> || Transformed<W>;
  SHARED_DYN(T, tiles);
  float* const a_values = reinterpret_cast<float*>(tiles + kMmaStages * Stage::kElements);
  float* const w_values = values_of<T>(a, a_values);
  values_of<T>(w, w_values);
  if constexpr (kTransforms) __syncthreads();
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  const int my_row = warp / Tile::kWarpsAside * Tile::kWarpRows, my_column = warp % Tile::kWarpsAside * kWarpColumns;
  const int64_t row_tiles = (p.m + Tile::kRows - 1) / Tile::kRows,
                column_tiles = (p.n + Tile::kColumns - 1) / Tile::kColumns, chunks = p.chunks();
  for (int64_t number = blockIdx.x; number < row_tiles * column_tiles * chunks * p.batch; number += gridDim.x) {
    const int row_tile = int(number / column_tiles % row_tiles), column_tile = int(number % column_tiles);
    const int q = int(number / (row_tiles * column_tiles) % chunks),
              b = int(number / (row_tiles * column_tiles * chunks));
    const int64_t row = int64_t{row_tile} * Tile::kRows, column = int64_t{column_tile} * Tile::kColumns;
    start(a, b), start(w, b), start(out, b);
    const int64_t begin = q * p.chunk, end = q + 1 == chunks ? depth_of(a, p.k) : begin + p.chunk,
                  rows = outer_size_of(a, p.m);
    const int depth = int(end - begin), steps = (depth + kDepth - 1) / kDepth;
    typename Left::template Loader<A> load_left(a, b, row, rows, begin);
    typename Right::template Loader<W> load_right(w, b, column, p.n, begin);
    const auto begin_step = [&](int step) {
      T* const stage = tiles + step % kMmaStages * Stage::kElements;
      const int left = depth - step * kDepth;
      if (left > 0) {
        load_left.begin(stage, a, left, step % kMmaStages);
        load_right.begin(stage + Stage::kLeft, w, left, step % kMmaStages);
      }
      cp_async_commit();
    };
    // A step is transformed beside the products of the one before it, by those who have copied it.
    const auto transform = [&](int step) {
      T* const stage = tiles + step % kMmaStages * Stage::kElements;
      if (step >= steps) return;
      if constexpr (Transformed<A>) load_left.transform(stage, a, a_values, step % kMmaStages);
      if constexpr (Transformed<W>) load_right.transform(stage + Stage::kLeft, w, w_values, step % kMmaStages);
    };
    for (int step = 0; step < kMmaStages - 1; ++step) begin_step(step);
    if constexpr (kTransforms) cp_async_wait<kMmaStages - 2>(), transform(0);
    float sum[kFragments][kWarpColumns / 8][4] = {};
    for (int step = 0; step < steps; ++step) {
      cp_async_wait<kTransforms ? 0 : kMmaStages - 2>();
      __syncthreads();  // the stage is complete, and the one before it has been used
      begin_step(step + kMmaStages - 1);
      if constexpr (kTransforms) transform(step + 1);
      const T* const left = tiles + step % kMmaStages * Stage::kElements;
#pragma unroll
      for (int k = 0; k < kDepth; k += kDepth / 2) {
        uint32_t columns_of_w[kWarpColumns / 16][4];
#pragma unroll
        for (int j = 0; j < kWarpColumns / 16; ++j)
          Right::right(columns_of_w[j], left + Stage::kLeft, my_column + j * 16, k, lane);
#pragma unroll
        for (int i = 0; i < kFragments; ++i) {
          uint32_t rows_of_a[4];
          Left::left(rows_of_a, left, my_row + i * 16, k, lane);
#pragma unroll
          for (int j = 0; j < kWarpColumns / 8; ++j) {
            const uint32_t(&pair)[4] = columns_of_w[j / 2];
            multiply<T>(sum[i][j], rows_of_a, {pair[j % 2 * 2], pair[j % 2 * 2 + 1]});
          }
        }
      }
    }
    cp_async_wait<0>();
    __syncthreads();  // from here on a warp has 16 rows of floats for itself
    float* const staged = reinterpret_cast<float*>(tiles) + warp * 16 * kStagedRow;
    Sums sums(out, column + my_column, lane);
#pragma unroll
    for (int i = 0; i < kFragments; ++i)
      put_rows(out, sums, sum[i], staged, b, q, row + my_row + i * 16, rows, column + my_column, p.n, lane);
    if constexpr (Sums::kBytes > 0) {
      using Acc = typename Sums::Acc;
      Acc* const of_warps = reinterpret_cast<Acc*>(reinterpret_cast<float*>(tiles) + kMmaThreads / 2 * kStagedRow);
      sums.leave(of_warps + warp * kWarpColumns, lane);
      __syncthreads();
      for (int c = int(threadIdx.x); c < Tile::kColumns && column + c < p.n; c += kMmaThreads) {
        Acc all = of_warps[c];
        for (int down = Tile::kColumns; down < kMmaThreads; down += Tile::kColumns)
          all = Sums::combine(all, of_warps[down + c]);
        out.put_sums(b * row_tiles + row_tile, column + c, all);
      }
    }
    __syncthreads();
  }
#endif
}

// A kernel, its tile of results, and the shared memory of its stages.
struct MmaKernel {
  Kernel kernel;
  int rows, columns;
  size_t bytes;
};
template <class T, class Tile, class A, class W, class Out> MmaKernel mma_kernel() {
  constexpr size_t kBytes = sizeof(T) * kMmaStages * MmaStage<T, Tile, A, W>::kElements;
  static_assert(kMmaThreads / 2 * kStagedRow * sizeof(float) + kMmaThreads * Out::Sums::kBytes <= kBytes);
  return {launchable<gemm_mma_kernel<T, Tile, A, W, Out>>(), Tile::kRows, Tile::kColumns, kBytes};
}

// The kernel's arguments are a, w, out and p.
inline void launch_mma(const MmaKernel& mma, Device device, const void* a, const void* w, const void* out,
                       const Product& p, size_t values) {
  const int64_t tiles = p.tiles(mma.rows, mma.columns);
  const int64_t most = int64_t(properties(device.index).multiprocessors) * 8;
  launch(mma.kernel, device, {dim3(unsigned(tiles < most ? tiles : most)), dim3(kMmaThreads), mma.bytes + values},
         {a, w, out, &p});
}

// Whether a device has tensor cores that may multiply numbers of T.
template <class T> bool has_tensor_cores(Device device) {
  return kHasMma<T> && (is_half_v<T> || arithmetic().tf32) && properties(device.index).major >= 8;
}

// The product by tensor cores if the device has them and the operands are packed; whether it was. The tile depends only
// on the shape: so do sums over its rows.
template <class T, class A, class W, class Out>
bool gemm_mma(Device device, const A& a, const W& w, const Out& out, const Product& p) {
  if (!has_tensor_cores<T>(device) || p.k > INT32_MAX - kMaxMmaDepth) return false;
  if (!a.packed() || !w.packed() || !out.aligned()) return false;
  MmaKernel mma = p.n > 64 ? mma_kernel<T, MmaTile<kMmaRows, kMmaColumns>, A, W, Out>()
                           : mma_kernel<T, MmaTile<kMmaRows, 64>, A, W, Out>();
  if constexpr (A::outer_first())
    if (p.m <= 64) mma = mma_kernel<T, MmaTile<64, kMmaColumns>, A, W, Out>();
  launch_mma(mma, device, &a, &w, &out, p, values_bytes(a) + values_bytes(w));
  return true;
}

}  // namespace
}  // namespace ringtape::cuda
