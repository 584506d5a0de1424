#pragma once
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/gemm/gemm_tile.h"
#include "kernels/cpu/vector/range.h"

RT_ISA_BEGIN

// Blocks after Goto and van de Geijn (2008), with the vector operand in the L2 cache: a panel of a, 14 x 384 floats,
// stays in the L1 cache while the panels of a block of b, up to 1 MB, are streamed.
inline constexpr int64_t kBlockK = 384, kBlockN = 640;

// One product, with choices that depend on its shape and strides. run() computes any rectangle of c; each element is
// the same sum for any rectangle.
template <class T> class Gemm {
 public:
  using C = compute_t<T>;
  static constexpr int64_t kWidth = kTileCols<C>;

  Gemm(int64_t m, int64_t n, int64_t k, Matrix<const T> a, Matrix<const T> b, const T* bias, Matrix<T> c);
  int64_t scratch_size() const { return a_size_ + b_size_ + bias_size_ + stage_size_; }  // in elements
  void run(Range rows, Range cols, C* scratch) const;

 private:
  // The vector operand of a block: `count` columns at `data`, in place or packed, and the rest packed in `last`.
  struct Panels {
    const C* data;
    int64_t stride, step, count;
    const C* last;
  };

  void run_dots(Range rows, Range cols) const;
  void run_tiles(Range rows, Range cols, C* scratch, C* to, int64_t to_stride) const;
  void run_block(Range rows, int64_t p, const Panels& panels, TileArgs<C> t, C* packed) const;
  void run_row(int64_t rows, const Panels& panels, const TileArgs<C>& block, int64_t i, const T* next) const;
  Panels pack_block(int64_t p, int64_t depth, Range cols, C* to) const;
  const C* bias_row(Range cols, C* to) const;
  void prefetch(const T* panel, int64_t rows, int64_t depth, int64_t q, int64_t parts) const;

  static constexpr bool kConvert = !std::is_same_v<T, C>;

  int64_t m_, n_, k_;
  Matrix<const T> a_, b_;
  const T* bias_;
  Matrix<T> c_;
  bool dot_, along_k_, pack_a_, pack_b_, stage_;
  int64_t block_k_, block_n_;
  int64_t a_size_, b_size_, bias_size_, stage_size_;
};

RT_ISA_END
