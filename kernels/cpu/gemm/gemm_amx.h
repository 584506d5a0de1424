#pragma once
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/vector/amx.h"
#include "kernels/cpu/vector/range.h"

RT_ISA_BEGIN

// Both operands are packed into panels of 32 rows or columns; a product of two panels keeps its 32 x 32 sums in four
// tiles.
inline constexpr int64_t kGemmPanel = 2 * kAmxRows, kGemmSums = kGemmPanel * kGemmPanel;

// Whether a product of this size fills the tiles of AMX so well that they pay.
inline bool amx_gemm_pays(int64_t m, int64_t n, int64_t k) {
  return 4 * m * n * k >= round_up(m, kAmxRows) * round_up(n, kAmxPairs) * round_up(k, kAmxDepth) &&
         m * n * k >= kGemmSums * kAmxDepth;
}

// gemm() of bf16 by AMX. a and b have a stride of 1, and the columns of c. The order of the products depends on k
// alone; subnormal numbers are zeros.
RT_BY_UNIT(amx_gemm, void(int64_t m, int64_t n, int64_t k, Matrix<const bf16> a, Matrix<const bf16> b, const bf16* bias,
                          Matrix<bf16> c));

RT_ISA_END
