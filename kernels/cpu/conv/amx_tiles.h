#pragma once
#include <algorithm>
#include <cmath>

#include "kernels/cpu/conv/conv2d_taps.h"
#include "kernels/cpu/conv/pixel_norm.h"
#include "kernels/cpu/vector/amx.h"

// Operands of convolutions as tiles of AMX. Sixteen images are the rows of a tile: 32 channels of one pixel of each. So
// a tap of a convolution is the tile of another pixel, whatever window and stride are, nothing is padded, and a tile
// lies together in memory, where rows at powers of two would meet in few sets of a cache. Too few images are divided
// into parts of some rows, each of which is an image here.
RT_ISA_BEGIN

namespace {

using HalfRow = uint16_t __attribute__((vector_size(32)));

RT_INLINE Row load_row(const bf16* p) {
  Row v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
RT_INLINE HalfRow load_half_row(const bf16* p) {
  HalfRow v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
RT_INLINE void store_row(bf16* p, Row v) { std::memcpy(static_cast<void*>(p), &v, sizeof v); }

// Element i of both, side by side.
RT_INLINE Row interleaved(HalfRow a, HalfRow b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23, 8, 24, 9, 25, 10, 26, 11,
                                 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
RT_INLINE Row interleaved_low(Row a, Row b) {
  return __builtin_shufflevector(a, b, 0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39, 8, 40, 9, 41, 10, 42, 11,
                                 43, 12, 44, 13, 45, 14, 46, 15, 47);
}
RT_INLINE Row interleaved_high(Row a, Row b) {
  return __builtin_shufflevector(a, b, 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55, 24, 56, 25, 57,
                                 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63);
}

// 16 x 16 of 32 bits.
RT_INLINE void transpose_tile(Row* v) {
#if RT_ISA_LEVEL == 3
  Vec<float> t[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) t[i] = Vec<float>(v[i]);
  transpose<float>(t);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) v[i] = Row(t[i]);
#else
  uint32_t from[16][16], to[16][16];
  std::memcpy(from, v, sizeof from);
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j) to[j][i] = from[i][j];
  std::memcpy(v, to, sizeof to);
#endif
}

// 32 of the depth by 16 columns, of a matrix whose element (d, j) is from[d depth_stride + j column_stride], one of the
// strides 1; zeros beyond `depth` and `columns`. As right operand: row p holds (2 p, j), (2 p + 1, j) for all columns;
// as left one row j holds the depth of column j.
template <bool right>
void pack_tile(const bf16* from, int64_t depth_stride, int64_t column_stride, int64_t depth, int64_t columns,
               bf16* to) {
  if (depth < kAmxDepth || columns < kAmxPairs) {
    bf16 copy[kAmxTile];
    for (int64_t j = 0; j < kAmxPairs; ++j)
      for (int64_t d = 0; d < kAmxDepth; ++d)
        copy[j * kAmxDepth + d] = d < depth && j < columns ? from[d * depth_stride + j * column_stride] : bf16();
    return pack_tile<right>(copy, 1, kAmxDepth, kAmxDepth, kAmxPairs, to);
  }
  Row v[kAmxPairs];
  if (depth_stride == 1)
    for (int64_t j = 0; j < kAmxPairs; ++j) v[j] = load_row(from + j * column_stride);
  else
    for (int64_t p = 0; p < kAmxPairs; ++p)
      v[p] = interleaved(load_half_row(from + 2 * p * depth_stride), load_half_row(from + (2 * p + 1) * depth_stride));
  if ((depth_stride == 1) == right) transpose_tile(v);
  for (int64_t p = 0; p < kAmxPairs; ++p) store_row(to + p * kAmxDepth, v[p]);
}

// to[i] = from[i] for i in [low, high), else 0, i < count <= 32.
RT_INLINE void copy_part(const bf16* from, int64_t low, int64_t high, bf16* to, int64_t count) {
#if RT_ISA_LEVEL == 3
  const auto first = [](int64_t n) { return uint32_t((uint64_t{1} << n) - 1); };
  const uint32_t part = high > low ? first(high) & ~first(low) : 0;
  _mm512_mask_storeu_epi16(to, first(count), _mm512_maskz_loadu_epi16(part, from));
#else
  for (int64_t i = 0; i < count; ++i) to[i] = i >= low && i < high ? from[i] : bf16();
#endif
}

// Tiles of the input that are used together, half of the L2 cache, in elements.
inline constexpr int64_t kGathered = 1 << 19;

// Whether a pixel of the tiles stands for an output, and its depth for the inputs of all its taps: of few channels, of
// which a block takes several taps, and where most pixels have no tap.
inline bool folds(int64_t depth, const Axes& axes) {
  constexpr int64_t few = 8;  // blocks
  const int64_t taps = axes.rows.taps * axes.cols.taps, step = axes.rows.in_step * axes.cols.in_step;
  if (taps == 1) return step > 1;
  return depth <= kAmxDepth / 4 && axes.cols.tap_step == 1 && ceil_div(taps * depth, kAmxDepth) <= std::max(few, step);
}
// The axis of such outputs.
inline Axis folded_axis(const Axis& a) { return {a.places, a.out_first, a.out_step, 0, 1, 1, 1, 0, 1}; }

// Parts of an image: part q has `rows` of its rows, from row q `rows` on; the last ones may go beyond its end.
struct AmxParts {
  int64_t count, rows;
};
// Of the outputs of n images: as few as fill tiles of `images` well.
inline AmxParts amx_parts(int64_t n, const Axis& rows, int64_t images) {
  constexpr double halo_cost = 0.3, gain = 0.95;  // a row that two parts read, beside the products of a row
  const double halo = std::max(double((rows.taps - 1) * rows.tap_step + 1) / double(rows.in_step) - 1, 0.) * halo_cost;
  AmxParts best{1, rows.places};
  double least = INFINITY;
  for (int64_t parts = 1; parts <= std::min(rows.places, images); ++parts) {
    const int64_t each = ceil_div(rows.places, parts), used = ceil_div(rows.places, each);
    const double cost = double(ceil_div(n * used, images)) * (double(each) + (used > 1 ? halo : 0.));
    if (cost < gain * least) best = {used, each}, least = cost;
  }
  return best;
}
// What these parts of the outputs read of an input of some height, but for what they share.
inline AmxParts input_parts(const AmxParts& outputs, const Axis& rows, int64_t height) {
  return {outputs.count, outputs.count == 1 ? height : outputs.rows * rows.in_step};
}

// Parts of images (n, h, w, depth of c), each as an image whose row r is row r + part `parts.rows` of the whole one.
// folded: null if they are not. norm: what normalises them as they are gathered, or null; folded ones are not
// normalised.
struct AmxImages {
  const bf16* data;
  int64_t n, h, w, c, depth;
  const Axes* folded;
  AmxParts parts;
  const Normalize<bf16>* norm = nullptr;

  int64_t count() const { return n * parts.count; }
  int64_t rows() const { return folded ? folded->rows.places : h; }
  int64_t pixels() const { return folded ? folded->cols.places : w; }  // of a row
  int64_t whole_depth() const { return folded ? folded->rows.taps * folded->cols.taps * depth : depth; }
  int64_t blocks() const { return ceil_div(whole_depth(), kAmxDepth); }
  // Of these rows those that some part has.
  Range existing(Range of) const {
    const int64_t low = std::max(of.begin, -(parts.count - 1) * parts.rows);
    return {low, std::max(low, std::min(of.end, rows()))};
  }
  // Whether these rows of the 16 parts from `first` on can be read in place, a block of the depth as 16 rows a part
  // apart.
  bool in_place(int64_t first, Range of) const {
    return !folded && !norm && depth % kAmxDepth == 0 && first + kAmxRows <= count() && parts.count * parts.rows == h &&
           of.begin >= 0 && of.end <= parts.rows;
  }
  int64_t part() const { return parts.rows * w * c; }

  // Writes these rows of the 16 parts from `first` on as tiles [row][pixel][block], zeros for what does not exist.
  // Eight parts side by side are read about 1.5 times as fast as one after the other.
  void gather(int64_t first, Range of, Range blocks, bf16* to) const {
    constexpr int64_t together = 8;
    const int64_t size = blocks.size() * kAmxTile;
    for (int64_t r = of.begin; r < of.end; ++r, to += pixels() * size)
      for (int64_t i = 0; i < kAmxRows; i += together) {
        ImageRow from[together];
        for (int64_t j = 0; j < together; ++j) from[j] = row_of(first + i + j, r);
        for (int64_t p = 0; p < pixels(); ++p)
          for (int64_t j = 0; j < together; ++j) gather_pixel(from[j], p, blocks, to + p * size + (i + j) * kAmxDepth);
      }
  }

 private:
  struct ImageRow {
    const bf16* image;  // null: there is no such row
    int64_t row;
  };
  ImageRow row_of(int64_t part, int64_t r) const {
    const int64_t image = part / parts.count, row = r + part % parts.count * parts.rows;
    return {image < n && row >= 0 && row < rows() ? data + image * h * w * c : nullptr, row};
  }

  RT_INLINE void gather_pixel(const ImageRow& from, int64_t p, Range blocks, bf16* to) const {
    if (!from.image || folded)
      for (int64_t d = 0; d < blocks.size(); ++d) store_row(to + d * kAmxTile, Row{});
    if (!from.image) return;
    if (!folded) return gather_channels(from.image + (from.row * w + p) * c, blocks, to);
    for (int64_t t = 0; t < folded->rows.taps; ++t) gather_taps(from.image, from.row, p, t, blocks, to);
  }

  RT_INLINE void gather_channels(const bf16* from, Range blocks, bf16* to) const {
    const int64_t whole = std::min(depth / kAmxDepth, blocks.end);
    for (int64_t d = blocks.begin; d < whole; ++d, to += kAmxTile) {
      if (norm) norm->relu(to, from + d * kAmxDepth, d * kAmxDepth, std::integral_constant<int64_t, kAmxDepth>{});
      else store_row(to, load_row(from + d * kAmxDepth));
    }
    if (whole == blocks.end) return;
    const int64_t first = whole * kAmxDepth, left = depth - first;
    copy_part(from + first, 0, left, to, kAmxDepth);
    if (norm) norm->relu(to, from + first, first, left);
  }

  // The taps of a row of the window lie together.
  RT_INLINE void gather_taps(const bf16* from, int64_t i, int64_t j, int64_t t, Range blocks, bf16* to) const {
    const Axis &rows = folded->rows, &cols = folded->cols;
    const int64_t row = rows.in_first + i * rows.in_step + t * rows.tap_step, col = cols.in_first + j * cols.in_step,
                  run = cols.taps * depth;
    if (row < 0 || row >= h) return;
    from += (row * w + col) * c;
    const int64_t low = std::max<int64_t>(-col, 0) * depth, high = std::min(w - col, cols.taps) * depth;
    for (int64_t e = 0, at = t * run; e < run;) {
      const int64_t block = at / kAmxDepth, offset = at % kAmxDepth, count = std::min(run - e, kAmxDepth - offset);
      if (block >= blocks.begin && block < blocks.end)
        copy_part(from + e, std::clamp<int64_t>(low - e, 0, count), std::clamp<int64_t>(high - e, 0, count),
                  to + (block - blocks.begin) * kAmxTile + offset, count);
      e += count, at += count;
    }
  }
};

}  // namespace

RT_ISA_END
