#pragma once
#include <algorithm>
#include <cstdint>

#include "core/view.h"
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/gemm/gemm_pack.h"
#include "kernels/cpu/gemm/gemm_panels.h"
#include "kernels/cpu/vector/range.h"

RT_ISA_BEGIN

namespace {

// A matrix of one head of x (A, H, rows, columns).
template <class T> Matrix<T> head_of(const View& x, int64_t head) {
  T* const data = x.as<T>() + head / x.dims[1] * x.strides[0] + head % x.dims[1] * x.strides[1];
  return {data, x.strides[2], x.strides[3]};
}

// The size of the parts of [0, size), at most `most` and a multiple of `step`, that leaves the smallest remainder.
constexpr int64_t balanced(int64_t size, int64_t most, int64_t step) {
  return std::max(step, round_up(ceil_div(size, std::max<int64_t>(1, ceil_div(size, most))), step));
}

// A left operand: element (i, p) at data[i * stride + p].
template <class O> struct LeftRows {
  const O* data;
  int64_t stride;
};

// A right operand: panel c at data + c * stride, its rows `step` apart.
template <class O> struct Panels {
  const O* data;
  int64_t stride, step;
};

// Matrices of T as the products of O read them.
template <class T, class O> struct Operands {
  static constexpr bool kPairs = std::is_same_v<O, bf16>;
  static constexpr int64_t kWidth = kTileCols<O>;

  static constexpr int64_t depth_of(int64_t k) { return kPairs ? round_up(k, 2) : k; }
  static constexpr int64_t panels_size(int64_t k, int64_t columns) { return depth_of(k) * round_up(columns, kWidth); }

  // b (k, columns) as a right operand, with panels of depth_of(k) steps.
  static void pack(Matrix<const T> b, int64_t k, int64_t columns, O* to) {
    for (int64_t j = 0; j < columns; j += kWidth, to += kWidth * depth_of(k)) {
      const T* from = b.data + j * b.col_stride;
      const int64_t count = std::min(kWidth, columns - j);
      if constexpr (kPairs) pack_pairs(from, b.col_stride, b.row_stride, count, kWidth, k, to);
      else pack_panel(from, b.col_stride, b.row_stride, count, kWidth, k, to);
    }
  }

  // b (k, columns) as a right operand: where it is, or packed by pack_panels().
  static Panels<O> panels(Matrix<const T> b, int64_t k, int64_t columns, O* packed) {
    if constexpr (std::is_same_v<T, O> && !kPairs)
      if (b.col_stride == 1 && columns % kLanes<O> == 0) return {b.data, kWidth, b.row_stride};
    return {packed, depth_of(k) * kWidth, kWidth};
  }
  static void pack_panels(Matrix<const T> b, int64_t k, int64_t columns, O* packed) {
    if (panels(b, k, columns, packed).data == packed) pack(b, k, columns, packed);
  }

  // a (m, k) as a left operand of depth_of(k) columns: where it is, or copied.
  [[nodiscard]] static LeftRows<O> rows(Matrix<const T> a, int64_t m, int64_t k, O* to) {
    if constexpr (std::is_same_v<T, O>)
      if (a.col_stride == 1 && k == depth_of(k)) return {a.data, a.row_stride};
    const int64_t stride = depth_of(k);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t p = 0; p < k; ++p) to[i * stride + p] = O(a.data[i * a.row_stride + p * a.col_stride]);
      std::fill(to + i * stride + k, to + (i + 1) * stride, O());
    }
    return {to, stride};
  }
};

// Calls f.operator()<T, O>() for a floating dtype T, whose products multiply O.
template <class F> void attention_products(DType dtype, F&& f) {
  if (dtype == DType::bf16 && bf16_choice().unit != Bf16Unit::converted) return f.template operator()<bf16, bf16>();
  dispatch_float(dtype, [&]<class T>() { f.template operator()<T, compute_t<T>>(); });
}

// Scores are weighed as 2^(s kLog2e).
inline constexpr double kLog2e = 1.4426950408889634;

template <class T> Matrix<const T> from_row(Matrix<const T> x, int64_t row) {
  return {x.data + row * x.row_stride, x.row_stride, x.col_stride};
}

// c (m, n) = a b, or c + a b, of depth k.
template <class O>
PanelProduct<O> product_of(int64_t m, int64_t n, int64_t k, LeftRows<O> a, Panels<O> b, compute_t<O>* c,
                           int64_t c_stride, bool add) {
  PanelProduct<O> t{};
  t.m = m, t.n = n, t.k = std::is_same_v<O, bf16> ? round_up(k, 2) : k;
  t.a = a.data, t.a_stride = a.stride, t.along_k = true;
  t.b = b.data, t.panel_stride = b.stride, t.b_step = b.step;
  t.c = c, t.c_stride = c_stride, t.add = add ? c : nullptr, t.add_stride = c_stride;
  return t;
}

// row[i] factor as T.
template <class T> void write_row(const compute_t<T>* row, int64_t n, compute_t<T> factor, T* to, int64_t step) {
  using C = compute_t<T>;
  if (step != 1) {
    for (int64_t i = 0; i < n; ++i) to[i * step] = T(row[i] * factor);
    return;
  }
  for (int64_t i = 0; i < n; i += kLanes<C>) {
    const int64_t count = std::min<int64_t>(n - i, kLanes<C>);
    store_converted(to + i, load_converted(row + i, count) * factor, count);
  }
}

}  // namespace

RT_ISA_END
