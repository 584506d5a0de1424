#pragma once
#include "kernels/cpu/gemm/gemm_tile.h"
#include "kernels/cpu/vector/by_unit.h"

RT_ISA_BEGIN

// c = a b + add, (m, k) times (k, n), with operands in the layout of the register tiles; runs on the calling thread.
// Element (i, p) of a is a[i * a_stride + p] along k, else a[p * a_stride + i]. b is in panels of kTileCols columns:
// element (p, j) is b[j / kTileCols * panel_stride + p * b_step + j % kTileCols], and whole vectors of the last panel
// are read. A panel should fit into the L1 cache: all rows of a use it in turn. A null add stands for zeros; with
// add_stride 0 one row is added to all; add may be c itself. Each element sums in the order of p.
//
// bf16 is multiplied in pairs, into sums of f32: k is even, and for even p elements p and p + 1 are adjacent, at a[p *
// a_stride + 2 * i] if not along k, and at b[... + p * b_step + 2 * (j % kTileCols)]. By AVX512-BF16 or AMX, or their
// emulation.
template <class T> struct PanelProduct {
  int64_t m, n, k;
  const T* a;
  int64_t a_stride;
  bool along_k;
  const T* b;
  int64_t panel_stride, b_step;
  const compute_t<T>* add;
  int64_t add_stride;
  compute_t<T>* c;
  int64_t c_stride;
  const compute_t<T>* residual;  // these as TileArgs; not of bf16
  bool relu;
  int64_t runs = 1, run_step = 0;
  bool fetch;  // whether a, along k, comes from memory: its next rows are prefetched while the first panel is used
};

template <class T> void multiply_panels(const PanelProduct<T>& product);
RT_BY_UNIT(multiply_pairs, void(const PanelProduct<bf16>& product));
RT_BY_UNIT(multiply_pairs_amx, void(const PanelProduct<bf16>& product));  // along k
template <> inline void multiply_panels(const PanelProduct<bf16>& product) {
  bf16_choice().unit == Bf16Unit::amx ? multiply_pairs_amx(product) : multiply_pairs(product);
}

// Rounds (rows, cols) of sums, by the unit that multiplies bf16: subnormal numbers become zeros.
RT_BY_UNIT(round_sums,
           void(int64_t rows, int64_t cols, const float* from, int64_t from_stride, bf16* to, int64_t to_stride));

namespace {

// Calls f.operator()<T, O>() for a floating dtype T, whose products multiply O: T itself, or what it is converted to.
template <class F> void with_products(DType dtype, F&& f) {
  if (dtype == DType::bf16 && bf16_choice().unit == Bf16Unit::avx512_bf16) return f.template operator()<bf16, bf16>();
  dispatch_float(dtype, [&]<class T>() { f.template operator()<T, compute_t<T>>(); });
}

}  // namespace

RT_ISA_END
