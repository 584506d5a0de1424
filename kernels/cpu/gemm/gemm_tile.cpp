#include "kernels/cpu/gemm/gemm_tile.h"

#include <array>
#include <utility>

#include "kernels/cpu/vector/isa.h"

RT_ISA_BEGIN

namespace {

template <class T, int rows, int vectors> struct Tile {
  static constexpr int kLast = (vectors - 1) * kLanes<T>;
  Vec<T> sum[rows][vectors] = {};

  RT_INLINE void multiply(const TileArgs<T>& t) {
    const T *a = t.a, *b = t.b;
    for (int64_t p = 0; p < t.k; ++p, a += t.a_stride, b += t.b_step) step(b, [&](int r) { return a[r]; });
  }

  // The same for an operand that is contiguous along k. An addressing mode allows one stride, doubled or not, so five
  // pointers are enough for fourteen rows.
  RT_INLINE void multiply_along_k(const TileArgs<T>& t) {
    constexpr int bases = (rows + 2) / 3, unroll = 2;
    const T *a[bases], *b = t.b;
#pragma GCC unroll 8
    for (int i = 0; i < bases; ++i) in_register(a[i] = i ? a[i - 1] + 3 * t.a_stride : t.a);
    int64_t p = 0;
    for (; p + unroll <= t.k; p += unroll) {
#pragma GCC unroll 2
      for (int u = 0; u < unroll; ++u, b += t.b_step) step(b, [&](int r) { return a[r / 3][r % 3 * t.a_stride + u]; });
#pragma GCC unroll 8
      for (int i = 0; i < bases; ++i) in_register(a[i] += unroll);
    }
    if (p < t.k) step(b, [&](int r) { return a[r / 3][r % 3 * t.a_stride]; });
  }

  template <bool whole> RT_INLINE void finish(const TileArgs<T>& t) {
    if (t.add) add<whole>(t.add, t.add_stride, t.cols);
    if (t.residual) add<whole>(t.residual, t.c_stride, t.cols);
    if (t.relu)
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; ++v) sum[r][v] = sum[r][v] < 0 ? Vec<T>{} : sum[r][v];
    T* c = t.c;
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r, c += t.c_stride) {
      if constexpr (vectors > 1) store(c, sum[r][0]);
      if constexpr (whole) store(c + kLast, sum[r][vectors - 1]);
      else store_partial(c + kLast, sum[r][vectors - 1], t.cols - kLast);
    }
  }

  RT_INLINE void prefetch(const TileArgs<T>& t) const {
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v) __builtin_prefetch(t.c + r * t.c_stride + v * kLanes<T>, 1);
    if (t.residual)
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; ++v) __builtin_prefetch(t.residual + r * t.c_stride + v * kLanes<T>);
  }

 private:
  template <bool whole> RT_INLINE void add(const T* from, int64_t stride, int64_t cols) {
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r, from += stride) {
      if constexpr (vectors > 1) sum[r][0] += load(from);
      sum[r][vectors - 1] += whole ? load(from + kLast) : load_partial(from + kLast, cols - kLast);
    }
  }

  template <class A> RT_INLINE void step(const T* b, A&& a) {
    Vec<T> bv[vectors];
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) bv[v] = load(b + v * kLanes<T>);
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v) sum[r][v] += a(r) * bv[v];
  }
};

template <class T, int rows, int vectors, bool along_k> void tile_of(const TileArgs<T>& args) {
  TileArgs<T> t = args;  // a copy, which stores to c cannot alias
  Tile<T, rows, vectors> tile;
  if (t.k > 64 || t.residual) tile.prefetch(t);
  if constexpr (along_k)
    for (int64_t run = 0; run < t.runs; ++run, t.a += t.run_step, t.b += t.k * t.b_step) tile.multiply_along_k(t);
  else tile.multiply(t);
  if (t.cols == vectors * kLanes<T>) tile.template finish<true>(t);
  else tile.template finish<false>(t);
}

template <class T> using TileFn = void (*)(const TileArgs<T>&);

// kTiles<T, vectors, along_k>[rows - 1]
template <class T, int vectors, bool along_k, size_t... r>
constexpr std::array<TileFn<T>, sizeof...(r)> make_tiles(std::index_sequence<r...>) {
  return {tile_of<T, int(r) + 1, vectors, along_k>...};
}
template <class T, int vectors, bool along_k>
constexpr auto kTiles = make_tiles<T, vectors, along_k>(std::make_index_sequence<kTileRows>());

}  // namespace

template <class T> void run_tile(int64_t rows, bool along_k, const TileArgs<T>& args) {
  const size_t r = size_t(rows - 1);
  if (args.cols > kLanes<T>) (along_k ? kTiles<T, 2, true>[r] : kTiles<T, 2, false>[r])(args);
  else (along_k ? kTiles<T, 1, true>[r] : kTiles<T, 1, false>[r])(args);
}
template void run_tile(int64_t, bool, const TileArgs<float>&);
template void run_tile(int64_t, bool, const TileArgs<double>&);

RT_ISA_END
