#include "kernels/cpu/gemm/gemm_amx.h"

#include <algorithm>

#include "kernels/cpu/conv/amx_tiles.h"
#include "kernels/cpu/vector/isa.h"
#include "kernels/cpu/vector/scratch.h"

RT_ISA_BEGIN

namespace {

// Into [panel][block of the depth][half] tiles.
template <bool right>
void pack_panels(const bf16* from, int64_t depth_stride, int64_t column_stride, int64_t depth, int64_t columns,
                 bf16* to) {
  const int64_t blocks = ceil_div(depth, kAmxDepth);
  parallel_for(ceil_div(columns, kGemmPanel) * blocks, 8, [&](int64_t begin, int64_t end) {
    for (int64_t q = begin; q < end; ++q)
      for (int64_t half = 0; half < 2; ++half) {
        const int64_t j = q / blocks * kGemmPanel + half * kAmxRows, d = q % blocks * kAmxDepth;
        pack_tile<right>(from + d * depth_stride + j * column_stride, depth_stride, column_stride, depth - d,
                         columns - j, to + (2 * q + half) * kAmxTile);
      }
  });
}

void multiply_pair(Amx& unit, const bf16* a, const bf16* b, int64_t blocks, float* sums) {
  unit.zero<0>(), unit.zero<1>(), unit.zero<2>(), unit.zero<3>();
  for (int64_t d = 0; d < blocks; ++d, a += 2 * kAmxTile, b += 2 * kAmxTile) {
    unit.load<4>(a, 64), unit.load<6>(b, 64), unit.product<0, 4, 6>();
    unit.load<7>(b + kAmxTile, 64), unit.product<1, 4, 7>();
    unit.load<5>(a + kAmxTile, 64), unit.product<2, 5, 6>(), unit.product<3, 5, 7>();
  }
  constexpr int64_t row = kGemmPanel * int64_t(sizeof(float)), lower = kAmxRows * kGemmPanel;
  unit.store<0>(sums, row), unit.store<1>(sums + kAmxPairs, row);
  unit.store<2>(sums + lower, row), unit.store<3>(sums + lower + kAmxPairs, row);
}

}  // namespace

void RT_UNIT::amx_gemm(int64_t m, int64_t n, int64_t k, Matrix<const bf16> a, Matrix<const bf16> b, const bf16* bias,
                       Matrix<bf16> c) {
  const int64_t blocks = ceil_div(k, kAmxDepth), rows = ceil_div(m, kGemmPanel), columns = ceil_div(n, kGemmPanel),
                panel = 2 * blocks * kAmxTile;
  const Scratch<bf16> packed((rows + columns) * panel, Device{});
  const Scratch<float> bias_row(columns * kGemmPanel, Device{});
  bf16 *const left = packed.data(), *const right = left + rows * panel;
  pack_panels<false>(a.data, a.col_stride, a.row_stride, k, m, left);
  pack_panels<true>(b.data, b.row_stride, b.col_stride, k, n, right);
  for (int64_t j = 0; j < columns * kGemmPanel; ++j) bias_row.data()[j] = bias && j < n ? float(bias[j]) : 0.f;
  // A thread uses each of its panels of the smaller side for all of the larger one.
  const bool by_rows = rows >= columns;
  parallel_parts(rows * columns, [&](int64_t, Range own) {
    Amx unit;
    alignas(64) float sums[kGemmSums];
    for (int64_t q = own.begin; q < own.end; ++q) {
      const int64_t i = by_rows ? q / columns : q % rows, j = by_rows ? q % columns : q / rows;
      multiply_pair(unit, left + i * panel, right + j * panel, blocks, sums);
      const int64_t count = std::min(n - j * kGemmPanel, kGemmPanel);
      for (int64_t r = 0; r < std::min(m - i * kGemmPanel, kGemmPanel); ++r) {
        const float* const from = sums + r * kGemmPanel;
        Amx::round(from, from + kAmxPairs, bias_row.data() + j * kGemmPanel,
                   c.data + (i * kGemmPanel + r) * c.row_stride + j * kGemmPanel, count);
      }
    }
  });
}

RT_ISA_END
