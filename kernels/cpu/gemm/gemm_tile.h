#pragma once
#include <cstdint>

#include "kernels/cpu/vector/vector.h"

RT_ISA_BEGIN

// The register tile: rows of broadcast elements of a times vectors of b. It leaves registers for the vectors of b and
// one broadcast: 28 + 3 of 32, or 12 + 3 and 8 + 3 of 16. Of NEON 24 + 3 of 32: rows in whole vectors of four.
inline constexpr int kTileRows = RT_ISA_LEVEL == RT_ISA_avx512 ? 14
                                 : RT_ISA_LEVEL == RT_ISA_neon ? 12
                                 : RT_ISA_LEVEL == RT_ISA_avx2 ? 6
                                                               : 4;
inline constexpr int kTileVectors = 2;
template <class T> inline constexpr int kTileCols = kTileVectors* kLanes<T>;

// c = a b + add for one tile. Element (p, j) of b is b[p * b_step + j]; element (r, p) of a is a[p * a_stride + r], or
// a[r * a_stride + p] for a tile along k. b has whole vectors; c and add have `cols` columns. A null add stands for
// zeros; it may be c itself. A residual, with c's strides, is added if it is not null; then `relu` replaces negative
// sums by 0. Along k, a may consist of several runs of k elements, run_step apart, while b goes on from one to the
// next.
template <class T> struct TileArgs {
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
  const T* residual = nullptr;
  bool relu = false;
  int64_t runs = 1, run_step = 0;
};

// The tile of that many rows, and of one or two vectors. All tiles are compiled once, in gemm_tile.cpp.
template <class T> void run_tile(int64_t rows, bool along_k, const TileArgs<T>& args);

RT_ISA_END
