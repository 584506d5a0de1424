#pragma once
#include "kernels/cpu/gemm.h"

RT_ISA_BEGIN

// Whether a product of this size fills the tiles of AMX so well that they pay.
bool amx_gemm_pays(int64_t m, int64_t n, int64_t k);

// gemm() of bf16 by AMX. a and b have a stride of 1, and the columns of c. The order of the products depends on k
// alone; subnormal numbers are zeros.
void amx_gemm(int64_t m, int64_t n, int64_t k, Matrix<const bf16> a, Matrix<const bf16> b, const bf16* bias,
              Matrix<bf16> c, bool emulated);

RT_ISA_END
