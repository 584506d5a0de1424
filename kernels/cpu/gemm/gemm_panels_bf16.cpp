#include <algorithm>
#include <array>
#include <utility>

#include "kernels/cpu/gemm/gemm_panels.h"
#include "kernels/cpu/vector/avx512_bf16.h"
#include "kernels/cpu/vector/isa.h"
#include "kernels/cpu/vector/range.h"

RT_ISA_BEGIN

namespace {

// 24 sums, four vectors of b and one broadcast pair: 29 of 32 registers. b may come from the L2 cache: four vectors are
// read for 24 products.
constexpr int kPairRows = 6, kPairVectors = 4;
static_assert(kPairVectors * kLanes<float> == kTileCols<bf16>);

struct PairTile {
  int64_t k;
  const bf16* a;
  int64_t a_stride;
  const bf16* b;
  int64_t b_step;
  const float* add;
  int64_t add_stride;
  float* c;
  int64_t c_stride;
  int64_t cols;
};

RT_INLINE Vec<int32_t> broadcast_pair(const bf16* p) {
  int32_t pair;
  std::memcpy(&pair, p, sizeof pair);
  return Vec<int32_t>{} + pair;
}

template <int rows, int vectors, bool along_k> void run_pair_tile(const PairTile& args) {
  constexpr int lanes = kLanes<float>, last = (vectors - 1) * lanes;
  const PairTile t = args;  // a copy, which stores to c cannot alias
  Vec<float> sum[rows][vectors] = {};
  const bf16 *a = t.a, *far = t.a + 3 * t.a_stride, *b = t.b;  // far: rows 3 to 5, as an address has one stride
  for (int64_t p = 0; p < t.k; p += 2, b += 2 * t.b_step) {
    Vec<int32_t> bv[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) std::memcpy(&bv[v], b + 2 * v * lanes, sizeof bv[v]);
#pragma GCC unroll 6
    for (int r = 0; r < rows; ++r) {
      const bf16* from = !along_k ? a + 2 * r : r < 3 ? a + r * t.a_stride : far + (r - 3) * t.a_stride;
      Vec<int32_t> pair = broadcast_pair(from);
      in_register(pair);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sum[r][v] = Avx512Bf16::dot(sum[r][v], pair, bv[v]);
    }
    if constexpr (along_k) a += 2, far += 2;
    else a += 2 * t.a_stride;
  }
#pragma GCC unroll 6
  for (int r = 0; r < rows; ++r) {
    float* c = t.c + r * t.c_stride;
    if (t.add) {
      const float* add = t.add + r * t.add_stride;
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v)
        sum[r][v] += v + 1 < vectors || t.cols == vectors * lanes ? load(add + v * lanes)
                                                                  : load_partial(add + last, t.cols - last);
    }
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v)
      if (v + 1 < vectors || t.cols == vectors * lanes) store(c + v * lanes, sum[r][v]);
      else store_partial(c + last, sum[r][v], t.cols - last);
  }
}

using PairTileFn = void (*)(const PairTile&);

// kPairTiles<along_k>[(rows - 1) * kPairVectors + vectors - 1]
template <bool along_k, size_t... i>
constexpr std::array<PairTileFn, sizeof...(i)> make_pair_tiles(std::index_sequence<i...>) {
  return {run_pair_tile<int(i) / kPairVectors + 1, int(i) % kPairVectors + 1, along_k>...};
}
template <bool along_k>
constexpr auto kPairTiles = make_pair_tiles<along_k>(std::make_index_sequence<kPairRows * kPairVectors>());

}  // namespace

void RT_UNIT::multiply_pairs(const PanelProduct<bf16>& x) {
  const auto& functions = x.along_k ? kPairTiles<true> : kPairTiles<false>;
  const int64_t tiles = ceil_div(x.m, kPairRows);
  for (int64_t j = 0; j < x.n; j += kTileCols<bf16>)
    for (int64_t q = 0; q < tiles; ++q) {
      const Range rows = part_of(x.m, tiles, q);
      if (x.fetch && j == 0 && q + 1 < tiles)
        prefetch_rows(x.a + rows.end * x.a_stride, x.a_stride, part_of(x.m, tiles, q + 1).size(), x.k);
      PairTile t;
      t.k = x.k;
      t.a = x.a + rows.begin * (x.along_k ? x.a_stride : 2), t.a_stride = x.a_stride;
      t.b = x.b + j / kTileCols<bf16> * x.panel_stride, t.b_step = x.b_step;
      t.add = x.add ? x.add + rows.begin * x.add_stride + j : nullptr, t.add_stride = x.add_stride;
      t.c = x.c + rows.begin * x.c_stride + j, t.c_stride = x.c_stride;
      t.cols = std::min<int64_t>(x.n - j, kTileCols<bf16>);
      functions[size_t((rows.size() - 1) * kPairVectors + ceil_div(t.cols, kLanes<float>) - 1)](t);
    }
}

void RT_UNIT::round_sums(int64_t rows, int64_t cols, const float* from, int64_t from_stride, bf16* to,
                         int64_t to_stride) {
  constexpr int lanes = kLanes<float>;
  for (int64_t r = 0; r < rows; ++r, from += from_stride, to += to_stride) {
    int64_t i = 0;
    for (; i + lanes <= cols; i += lanes) Avx512Bf16::store(to + i, load(from + i));
    if (i < cols) store_rounded(to + i, load_partial(from + i, cols - i), cols - i);
  }
}

RT_ISA_END
