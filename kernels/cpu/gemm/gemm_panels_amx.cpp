// multiply_panels of bf16 by AMX: the pairs of a panel are what a tile of the right operand holds.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/gemm/gemm_panels.h"
#include "kernels/cpu/vector/amx.h"
#include "kernels/cpu/vector/isa.h"
#include "kernels/cpu/vector/range.h"
#include "kernels/cpu/vector/scratch.h"

RT_ISA_BEGIN

namespace {

constexpr int64_t kRows = 2 * kAmxRows, kCols = 2 * kAmxPairs;

// Up to 32 rows of a, along k, into [block of the depth][half] tiles, with zeros beyond.
void gather_rows(const PanelProduct<bf16>& x, int64_t first, bf16* to) {
  for (int64_t d = 0; d < x.k; d += kAmxDepth)
    for (int64_t r = 0; r < kRows; ++r, to += kAmxDepth) {
      const int64_t count = first + r < x.m ? std::min(x.k - d, kAmxDepth) : 0;
      std::copy_n(x.a + (first + r) * x.a_stride + d, count, to);
      std::fill(to + count, to + kAmxDepth, bf16());
    }
}

// The pairs of 16 columns of b.
class Columns {
 public:
  Columns(const PanelProduct<bf16>& x, int64_t column)
      : from_(x.b + column / kTileCols<bf16> * x.panel_stride + 2 * (column % kTileCols<bf16>)), step_(x.b_step) {
    const int64_t whole = x.k / kAmxDepth * kAmxDepth;
    for (int64_t p = whole; p < x.k; p += 2) std::copy_n(from_ + p * step_, kAmxDepth, last_ + (p - whole) * kAmxPairs);
    std::fill(last_ + (x.k - whole) * kAmxPairs, last_ + kAmxTile, bf16());
  }
  // Loads those of the depth from d on, with zeros beyond k.
  template <int tile> void load(Amx& unit, int64_t d, int64_t k) const {
    constexpr int64_t size = int64_t(sizeof(bf16));
    if (d + kAmxDepth <= k) unit.load<tile>(from_ + d * step_, 2 * step_ * size);
    else unit.load<tile>(last_, kAmxDepth * size);
  }

 private:
  const bf16* from_;
  int64_t step_;
  alignas(64) bf16 last_[kAmxTile];
};

void write_sums(const PanelProduct<bf16>& x, int64_t row, int64_t column, const float* sums) {
  const int64_t count = std::min(x.n - column, kCols);
  for (int64_t r = row; r < std::min(x.m, row + kRows); ++r, sums += kCols) {
    float* const to = x.c + r * x.c_stride + column;
    const float* const add = x.add ? x.add + r * x.add_stride + column : nullptr;
    for (int64_t j = 0; j < count; ++j) to[j] = add ? sums[j] + add[j] : sums[j];
  }
}

}  // namespace

void RT_UNIT::multiply_pairs_amx(const PanelProduct<bf16>& x) {
  const Scratch<bf16> rows(ceil_div(x.k, kAmxDepth) * 2 * kAmxTile, Device{});
  alignas(64) float sums[kRows * kCols];
  constexpr int64_t line = kAmxDepth * int64_t(sizeof(bf16)), row = kCols * int64_t(sizeof(float));
  Amx unit;
  for (int64_t i = 0; i < x.m; i += kRows) {
    gather_rows(x, i, rows.data());
    for (int64_t j = 0; j < x.n; j += kCols) {
      const Columns left(x, j), right(x, j + kAmxPairs < x.n ? j + kAmxPairs : j);
      unit.zero<0>(), unit.zero<1>(), unit.zero<2>(), unit.zero<3>();
      const bf16* a = rows.data();
      for (int64_t d = 0; d < x.k; d += kAmxDepth, a += 2 * kAmxTile) {
        unit.load<4>(a, line), left.load<6>(unit, d, x.k), unit.product<0, 4, 6>();
        right.load<7>(unit, d, x.k), unit.product<1, 4, 7>();
        unit.load<5>(a + kAmxTile, line), unit.product<2, 5, 6>(), unit.product<3, 5, 7>();
      }
      unit.store<0>(sums, row), unit.store<1>(sums + kAmxPairs, row);
      unit.store<2>(sums + kAmxRows * kCols, row), unit.store<3>(sums + kAmxRows * kCols + kAmxPairs, row);
      write_sums(x, i, j, sums);
    }
  }
}

RT_ISA_END
