#pragma once
#include <array>

#include "kernels/cpu/vector.h"

RT_ISA_BEGIN

namespace {

// The register tile: rows of broadcast elements of a times vectors of b. It leaves registers for the vectors of b and
// one broadcast: 28 + 3 of 32, or 12 + 3 and 8 + 3 of 16.
inline constexpr int kTileRows = RT_ISA_LEVEL == 3 ? 14 : RT_ISA_LEVEL == 2 ? 6 : 4;
inline constexpr int kTileVectors = 2;
template <class T>
inline constexpr int kTileCols = kTileVectors* kLanes<T>;

// c = a b + add for one tile. Element (p, j) of b is b[p * b_step + j]; element (r, p) of a is a[p * a_stride + r], or
// a[r * a_stride + p] for a tile along k. b has whole vectors; c and add have `cols` columns. A null add stands for
// zeros; it may be c itself.
template <class T>
struct TileArgs {
  int64_t k;
  const T* a;
  int64_t a_stride;
  const T* b;
  int64_t b_step;
  const T* add;
  int64_t add_stride;
  T* c;
  int64_t c_stride;
  int64_t cols;
};

template <class T, int rows, int vectors>
struct Tile {
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
      for (int u = 0; u < unroll; ++u, b += t.b_step)
        step(b, [&](int r) { return a[r / 3][r % 3 * t.a_stride + u]; });
#pragma GCC unroll 8
      for (int i = 0; i < bases; ++i) in_register(a[i] += unroll);
    }
    if (p < t.k) step(b, [&](int r) { return a[r / 3][r % 3 * t.a_stride]; });
  }

  template <bool whole>
  RT_INLINE void finish(const TileArgs<T>& t) {
    const T* add = t.add;
    if (add)
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r, add += t.add_stride) {
        if constexpr (vectors > 1) sum[r][0] += load(add);
        sum[r][vectors - 1] += whole ? load(add + kLast) : load_partial(add + kLast, t.cols - kLast);
      }
    T* c = t.c;
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r, c += t.c_stride) {
      if constexpr (vectors > 1) store(c, sum[r][0]);
      if constexpr (whole)
        store(c + kLast, sum[r][vectors - 1]);
      else
        store_partial(c + kLast, sum[r][vectors - 1], t.cols - kLast);
    }
  }

  RT_INLINE void prefetch(const TileArgs<T>& t) const {
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v) __builtin_prefetch(t.c + r * t.c_stride + v * kLanes<T>, 1);
  }

 private:
  template <class A>
  RT_INLINE void step(const T* b, A&& a) {
    Vec<T> bv[vectors];
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) bv[v] = load(b + v * kLanes<T>);
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v) sum[r][v] += a(r) * bv[v];
  }
};

template <class T, int rows, int vectors, bool along_k>
void run_tile(const TileArgs<T>& args) {
  const TileArgs<T> t = args;  // a copy, which stores to c cannot alias
  Tile<T, rows, vectors> tile;
  if (t.k > 64) tile.prefetch(t);
  if constexpr (along_k)
    tile.multiply_along_k(t);
  else
    tile.multiply(t);
  if (t.cols == vectors * kLanes<T>)
    tile.template finish<true>(t);
  else
    tile.template finish<false>(t);
}

template <class T>
using TileFn = void (*)(const TileArgs<T>&);

// kTiles<T, vectors, along_k>[rows - 1]
template <class T, int vectors, bool along_k, size_t... r>
constexpr std::array<TileFn<T>, sizeof...(r)> make_tiles(std::index_sequence<r...>) {
  return {run_tile<T, int(r) + 1, vectors, along_k>...};
}
template <class T, int vectors, bool along_k>
inline constexpr auto kTiles = make_tiles<T, vectors, along_k>(std::make_index_sequence<kTileRows>());

}  // namespace

RT_ISA_END
