#include "kernels/cpu/gemm/gemm_block.h"

#include <algorithm>
#include <limits>

#include "kernels/cpu/gemm/gemm_dot.h"
#include "kernels/cpu/gemm/gemm_pack.h"
#include "kernels/cpu/vector/isa.h"

RT_ISA_BEGIN

namespace {

constexpr int64_t kStageRows = 40 * kTileRows;
constexpr int64_t kDotBlockK = 1024;  // 3 + 8 rows of it roughly fill the L1 cache
constexpr int64_t kFewRows = 32;      // too few to make packing b worthwhile
// Packing a pays for more columns than this. For tiles of few rows it never does: with 192 to 1,024 columns it made
// products 4 to 9 % slower (AMD, Zen 3).
constexpr bool kFlat = RT_ISA_LEVEL == RT_ISA_avx2;
constexpr int64_t kFewColumns = kFlat ? std::numeric_limits<int64_t>::max() : 128;
// Rows a multiple of so many bytes apart would share a few sets of the L1 cache.
constexpr int64_t kSharedSets = kFlat ? 4096 : 1024;

}  // namespace

template <class T>
Gemm<T>::Gemm(int64_t m, int64_t n, int64_t k, Matrix<const T> a, Matrix<const T> b, const T* bias, Matrix<T> c)
    : m_(m), n_(n), k_(k), a_(a), b_(b), bias_(bias), c_(c) {
  stage_ = kConvert || c.col_stride != 1;
  dot_ = !stage_ && a.col_stride == 1 && b.row_stride == 1 && k >= 2 * kLanes<C> && std::min(m, n) <= kFewRows;
  pack_b_ = kConvert || b.col_stride != 1 || (m > kFewRows && k > 64);
  along_k_ = !kConvert && a.col_stride == 1 && n <= kFewColumns && a.row_stride * int64_t(sizeof(T)) % kSharedSets != 0;
  pack_a_ = kConvert || !(along_k_ || (a.row_stride == 1 && !pack_b_));
  block_k_ = std::max<int64_t>(round_up(ceil_div(k, std::max<int64_t>(ceil_div(k, kBlockK), 1)), kLanes<C>), 1);
  block_n_ = round_up(ceil_div(n, ceil_div(n, kBlockN)), kTileCols<C>);
  a_size_ = dot_ || !pack_a_ ? 0 : round_up(kTileRows * block_k_, kLanes<C>);
  b_size_ = dot_ ? 0 : block_k_ * (pack_b_ ? block_n_ : kTileCols<C>);
  bias_size_ = kConvert && bias ? block_n_ : 0;
  stage_size_ = stage_ ? std::min(m, kStageRows) * block_n_ : 0;
}

template <class T> void Gemm<T>::run(Range rows, Range cols, C* scratch) const {
  if constexpr (!kConvert) {
    if (dot_) return run_dots(rows, cols);
    if (!stage_)
      return run_tiles(rows, cols, scratch, c_.data + rows.begin * c_.row_stride + cols.begin, c_.row_stride);
  }
  C* staged = scratch + a_size_ + b_size_ + bias_size_;
  for (int64_t j = cols.begin; j < cols.end; j += block_n_)
    for (int64_t i = rows.begin; i < rows.end; i += kStageRows) {
      const Range is{i, std::min(i + kStageRows, rows.end)}, js{j, std::min(j + block_n_, cols.end)};
      run_tiles(is, js, scratch, staged, js.size());
      for (int64_t r = is.begin; r < is.end; ++r) {
        T* to = c_.data + r * c_.row_stride + j * c_.col_stride;
        const C* from = staged + (r - i) * js.size();
        if (c_.col_stride == 1) narrow(from, js.size(), to);
        else
          for (int64_t q = 0; q < js.size(); ++q) to[q * c_.col_stride] = T(from[q]);
      }
    }
}

template <class T> void Gemm<T>::run_dots(Range rows, Range cols) const {
  if constexpr (!kConvert) {
    const int64_t row_tiles = ceil_div(rows.size(), kDotRows), col_tiles = ceil_div(cols.size(), kDotCols);
    for (int64_t p = 0; p < k_; p += kDotBlockK)
      for (int64_t tj = 0; tj < col_tiles; ++tj)
        for (int64_t ti = 0; ti < row_tiles; ++ti) {
          const Range is = part_of(rows.size(), row_tiles, ti), js = part_of(cols.size(), col_tiles, tj);
          const int64_t i = rows.begin + is.begin, j = cols.begin + js.begin;
          DotArgs<T> t;
          t.k = std::min(k_ - p, kDotBlockK);
          t.a = a_.data + i * a_.row_stride + p, t.a_stride = a_.row_stride;
          t.b = b_.data + j * b_.col_stride + p, t.b_stride = b_.col_stride;
          t.c = c_.data + i * c_.row_stride + j, t.c_stride = c_.row_stride;
          t.add = p ? t.c : bias_ ? bias_ + j : nullptr, t.add_stride = p ? c_.row_stride : 0;
          kDots<T>[size_t((is.size() - 1) * kDotCols + js.size() - 1)](t);
        }
  }
}

template <class T> void Gemm<T>::run_tiles(Range rows, Range cols, C* scratch, C* to, int64_t to_stride) const {
  C *packed_a = scratch, *packed_b = packed_a + a_size_, *bias_to = packed_b + b_size_;
  for (int64_t j = cols.begin; j < cols.end; j += block_n_) {
    const Range js{j, std::min(j + block_n_, cols.end)};
    const C* bias = bias_row(js, bias_to);
    for (int64_t p = 0; p == 0 || p < k_; p += block_k_) {  // once if k is 0
      TileArgs<C> t{};
      t.k = std::min(k_ - p, block_k_);
      t.c = to + (j - cols.begin), t.c_stride = to_stride;
      t.add = p ? t.c : bias, t.add_stride = p ? to_stride : 0;
      t.cols = js.size();
      run_block(rows, p, pack_block(p, t.k, js, packed_b), t, packed_a);
    }
  }
}

// All rows of tiles of one block of b; t describes the block as one tile.
template <class T>
void Gemm<T>::run_block(Range rows, int64_t p, const Panels& panels, TileArgs<C> t, C* packed) const {
  const int64_t tiles = ceil_div(rows.size(), kTileRows);
  const auto panel = [&](Range is) { return a_.data + (rows.begin + is.begin) * a_.row_stride + p * a_.col_stride; };
  for (int64_t q = 0; q < tiles; ++q) {
    const Range is = part_of(rows.size(), tiles, q);
    const T* next = pack_a_ && q + 1 < tiles ? panel(part_of(rows.size(), tiles, q + 1)) : nullptr;
    if constexpr (!kConvert) t.a = panel(is), t.a_stride = along_k_ ? a_.row_stride : a_.col_stride;
    if (pack_a_) {
      pack_panel(panel(is), a_.row_stride, a_.col_stride, is.size(), is.size(), t.k, packed);
      t.a = packed, t.a_stride = is.size();
    }
    run_row(is.size(), panels, t, is.begin, next);
  }
}

template <class T>
void Gemm<T>::run_row(int64_t rows, const Panels& panels, const TileArgs<C>& block, int64_t i, const T* next) const {
  const int64_t tiles = ceil_div(block.cols, kTileCols<C>);
  TileArgs<C> t = block;
  for (int64_t q = 0; q < tiles; ++q) {
    const int64_t j = q * kTileCols<C>;
    t.b = j < panels.count ? panels.data + j * panels.stride : panels.last;
    t.b_step = j < panels.count ? panels.step : kTileCols<C>;
    t.c = block.c + i * block.c_stride + j;
    if (block.add) t.add = block.add + i * block.add_stride + j;
    t.cols = std::min<int64_t>(block.cols - j, kTileCols<C>);
    run_tile(rows, along_k_, t);
    if (next) prefetch(next, rows, t.k, q, tiles);
  }
}

// Packs a block of b, or, if b is read in place, only a last panel without whole vectors.
template <class T> auto Gemm<T>::pack_block(int64_t p, int64_t depth, Range cols, C* to) const -> Panels {
  constexpr int64_t width = kTileCols<C>;
  const T* from = b_.data + p * b_.row_stride + cols.begin * b_.col_stride;
  const int64_t n = cols.size(), in_place = pack_b_ ? 0 : n % kLanes<C> ? n / width * width : n;
  for (int64_t j = in_place; j < n; j += width)
    pack_panel(from + j * b_.col_stride, b_.col_stride, b_.row_stride, std::min(n - j, width), width, depth,
               to + (j - in_place) * depth);
  if constexpr (!kConvert)
    if (!pack_b_) return {from, 1, b_.row_stride, in_place, to};
  return {to, depth, width, n, nullptr};
}

template <class T> auto Gemm<T>::bias_row(Range cols, C* to) const -> const C* {
  if (!bias_) return nullptr;
  if constexpr (!kConvert) return bias_ + cols.begin;
  else {
    widen(bias_ + cols.begin, cols.size(), to);
    return to;
  }
}

// Prefetches part q of the rows of a that are packed next: the processor does not predict strided reads.
template <class T> void Gemm<T>::prefetch(const T* panel, int64_t rows, int64_t depth, int64_t q, int64_t parts) const {
  constexpr int64_t line = 64 / int64_t(sizeof(T));
  const bool by_row = a_.col_stride == 1;
  const Range part = part_of(by_row ? rows : depth, parts, q);
  for (int64_t i = part.begin; i < part.end; ++i)
    for (int64_t x = 0; x < (by_row ? depth : rows); x += line)
      __builtin_prefetch(panel + i * (by_row ? a_.row_stride : a_.col_stride) + x);
}

template class Gemm<float>;
template class Gemm<double>;
template class Gemm<f16>;
template class Gemm<bf16>;

RT_ISA_END
