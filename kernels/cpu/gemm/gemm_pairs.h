#pragma once
#include <algorithm>
#include <cstdint>

#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/gemm/gemm_pack.h"
#include "kernels/cpu/gemm/gemm_panels.h"
#include "kernels/cpu/vector/range.h"

RT_ISA_BEGIN

namespace {

// A block of b, up to 256 KB, the rows of a that meet it and their sums stay in the L2 cache.
inline constexpr int64_t kPairedBlockK = 512, kPairedBlockN = 4 * kTileCols<bf16>, kPairedRows = 192;
inline constexpr int64_t kPairedPanelRows = 48;  // of a, if its pairs are of two rows in memory

// A product of bf16 whose operands are not converted, as Gemm. Sums are f32 in scratch.
class PairedGemm {
 public:
  using C = float;
  static constexpr int64_t kWidth = kTileCols<bf16>;

  PairedGemm(int64_t m, int64_t n, int64_t k, Matrix<const bf16> a, Matrix<const bf16> b, const bf16* bias,
             Matrix<bf16> c)
      : k_(k), a_(a), b_(b), bias_(bias), c_(c), in_place_(a.col_stride == 1 && k % 2 == 0),
        across_(a.row_stride == 1 && !in_place_),
        block_k_(std::max<int64_t>(round_up(ceil_div(k, std::max<int64_t>(ceil_div(k, kPairedBlockK), 1)), 2), 2)),
        block_n_(round_up(ceil_div(n, ceil_div(n, kPairedBlockN)), kWidth)),
        rows_(std::min(round_up(m, kPairedPanelRows), kPairedRows)) {}

  int64_t scratch_size() const { return operand_size() + block_n_ + rows_ * block_n_; }

  void run(Range rows, Range cols, float* scratch) const {
    bf16 *packed_b = reinterpret_cast<bf16*>(scratch), *packed_a = packed_b + block_k_ * block_n_;
    float *bias = scratch + operand_size(), *sums = bias + block_n_;
    for (int64_t j = cols.begin; j < cols.end; j += block_n_) {
      const Range js{j, std::min(j + block_n_, cols.end)};
      for (int64_t q = js.begin; q < js.end && bias_; ++q) bias[q - j] = float(bias_[q]);
      for (int64_t i = rows.begin; i < rows.end; i += rows_) {
        const Range is{i, std::min(i + rows_, rows.end)};
        for (int64_t p = 0; p == 0 || p < k_; p += block_k_) {  // once if k is 0
          const Range ps{p, std::min(p + block_k_, k_)};
          if (i == rows.begin || block_k_ < k_) pack_b(ps, js, packed_b);
          const float* add = p ? sums : bias_ ? bias : nullptr;
          multiply(is, ps, js.size(), packed_a, packed_b, add, p ? block_n_ : 0, sums);
        }
        write_out(is, js, sums);
      }
    }
  }

 private:
  int64_t operand_size() const { return (block_k_ * block_n_ + (in_place_ ? 0 : block_k_ * rows_)) / 2; }  // in floats

  void pack_b(Range ps, Range js, bf16* to) const {
    const bf16* from = b_.data + ps.begin * b_.row_stride;
    for (int64_t j = js.begin; j < js.end; j += kWidth, to += block_k_ * kWidth)
      pack_pairs(from + j * b_.col_stride, b_.col_stride, b_.row_stride, std::min(js.end - j, kWidth), kWidth,
                 ps.size(), to);
  }

  void multiply(Range is, Range ps, int64_t columns, bf16* packed_a, const bf16* packed_b, const float* add,
                int64_t add_stride, float* sums) const {
    PanelProduct<bf16> t{};
    t.k = round_up(ps.size(), 2), t.n = columns;
    t.b = packed_b, t.panel_stride = block_k_ * kWidth, t.b_step = kWidth;
    t.add_stride = add_stride, t.c_stride = block_n_;
    const int64_t step = across_ ? kPairedPanelRows : is.size();
    for (int64_t i = is.begin; i < is.end; i += step) {
      const bf16* from = a_.data + i * a_.row_stride + ps.begin * a_.col_stride;
      t.m = std::min(is.end - i, step);
      t.along_k = !across_;
      t.a = in_place_ ? from : packed_a;
      t.a_stride = in_place_ ? a_.row_stride : across_ ? kPairedPanelRows : block_k_;
      if (across_) pack_pairs_of_rows(from, a_.col_stride, t.m, kPairedPanelRows, ps.size(), packed_a);
      else if (!in_place_) gather(from, t.m, ps.size(), packed_a);
      t.add = add ? add + (i - is.begin) * add_stride : nullptr;
      t.c = sums + (i - is.begin) * block_n_;
      multiply_panels(t);
    }
  }

  // Rows of a along k, with a zero beyond an odd k.
  void gather(const bf16* from, int64_t rows, int64_t depth, bf16* to) const {
    for (int64_t i = 0; i < rows; ++i, from += a_.row_stride, to += block_k_) {
      for (int64_t p = 0; p < depth; ++p) to[p] = from[p * a_.col_stride];
      if (depth % 2) to[depth] = bf16();
    }
  }

  void write_out(Range is, Range js, const float* sums) const {
    bf16* to = c_.data + is.begin * c_.row_stride + js.begin * c_.col_stride;
    if (c_.col_stride == 1) return round_sums(is.size(), js.size(), sums, block_n_, to, c_.row_stride);
    for (int64_t i = 0; i < is.size(); ++i)
      for (int64_t j = 0; j < js.size(); ++j)
        round_sums(1, 1, sums + i * block_n_ + j, 1, to + i * c_.row_stride + j * c_.col_stride, 1);
  }

  int64_t k_;
  Matrix<const bf16> a_, b_;
  const bf16* bias_;
  Matrix<bf16> c_;
  bool in_place_, across_;
  int64_t block_k_, block_n_, rows_;
};

}  // namespace

RT_ISA_END
