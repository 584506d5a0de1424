#pragma once
#include <algorithm>

#include "kernels/cpu/amx.h"
#include "kernels/cpu/conv2d_taps.h"

// Operands of convolutions as tiles of AMX. Sixteen images are the rows of a tile: 32 channels of one pixel of each. So
// a tap of a convolution is the tile of another pixel, whatever window and stride are, nothing is padded, and a tile
// lies together in memory, where rows at powers of two would meet in few sets of a cache.
RT_ISA_BEGIN

namespace {

// 32 bf16, as one vector where the processor has such.
using Row = uint16_t __attribute__((vector_size(64)));
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

// A tile of weights: 16 pairs of the depth by 16 columns. Element (d, j) is w[d depth_stride + j column_stride], one of
// the strides is 1; zeros beyond `depth` and `columns`.
inline void pack_weight_tile(const bf16* w, int64_t depth_stride, int64_t column_stride, int64_t depth, int64_t columns,
                             bf16* to) {
  bf16 copy[kAmxTile];
  if (depth < kAmxDepth || columns < kAmxPairs) {
    for (int64_t j = 0; j < kAmxPairs; ++j)
      for (int64_t d = 0; d < kAmxDepth; ++d)
        copy[j * kAmxDepth + d] = d < depth && j < columns ? w[d * depth_stride + j * column_stride] : bf16();
    w = copy, depth_stride = 1, column_stride = kAmxDepth;
  }
  Row v[kAmxPairs];
  if (depth_stride == 1) {
    for (int64_t j = 0; j < kAmxPairs; ++j) v[j] = load_row(w + j * column_stride);
    transpose_tile(v);
  } else {
    for (int64_t p = 0; p < kAmxPairs; ++p)
      v[p] = interleaved(load_half_row(w + 2 * p * depth_stride), load_half_row(w + (2 * p + 1) * depth_stride));
  }
  for (int64_t p = 0; p < kAmxPairs; ++p) store_row(to + p * kAmxDepth, v[p]);
}

// Images (n, h, w, depth of c). `folded`: a pixel stands for an output, and its depth are the inputs of all its taps,
// for images of few channels.
struct AmxImages {
  const bf16* data;
  int64_t n, h, w, c, depth;
  const Axes* folded;

  int64_t rows() const { return folded ? folded->rows.places : h; }
  int64_t pixels() const { return folded ? folded->cols.places : w; }  // of a row
  int64_t blocks() const { return ceil_div(folded ? folded->rows.taps * folded->cols.taps * depth : depth, kAmxDepth); }
  // Whether the 16 images from `first` on can be read in place, a block of the depth as 16 rows w h c apart.
  bool in_place(int64_t first) const { return !folded && depth % kAmxDepth == 0 && first + kAmxRows <= n; }
  int64_t image() const { return h * w * c; }

  // Writes 16 images from `first` on, zeros for those beyond n, as tiles [row][pixel][block].
  void gather(int64_t first, Range rows, Range blocks, bf16* to) const {
    const int64_t tiles = rows.size() * pixels() * blocks.size();
    for (int64_t i = 0; i < kAmxRows; ++i, to += kAmxDepth) {
      if (first + i >= n) {
        for (int64_t t = 0; t < tiles; ++t) store_row(to + t * kAmxTile, Row{});
        continue;
      }
      const bf16* image_data = data + (first + i) * image();
      bf16* out = to;
      for (int64_t r = rows.begin; r < rows.end; ++r)
        for (int64_t j = 0; j < pixels(); ++j) {
          if (folded) gather_taps(image_data, r, j, blocks, out);
          else gather_pixel(image_data + (r * w + j) * c, blocks, out);
          out += blocks.size() * kAmxTile;
        }
    }
  }

 private:
  RT_INLINE void gather_pixel(const bf16* from, Range blocks, bf16* to) const {
    for (int64_t d = blocks.begin; d < blocks.end; ++d, to += kAmxTile)
      if ((d + 1) * kAmxDepth <= depth) store_row(to, load_row(from + d * kAmxDepth));
      else store_part(from + d * kAmxDepth, depth - d * kAmxDepth, to);
  }
  static void store_part(const bf16* from, int64_t count, bf16* to) {
    for (int64_t d = 0; d < kAmxDepth; ++d) to[d] = d < count ? from[d] : bf16();
  }
  void gather_taps(const bf16* image_data, int64_t i, int64_t j, Range blocks, bf16* to) const {
    const Axis &rows = folded->rows, &cols = folded->cols;
    for (int64_t d = blocks.begin; d < blocks.end; ++d) store_row(to + (d - blocks.begin) * kAmxTile, Row{});
    for (int64_t t = 0; t < rows.taps; ++t)
      for (int64_t u = 0; u < cols.taps; ++u) {
        const int64_t row = rows.in_first + i * rows.in_step + t * rows.tap_step,
                      col = cols.in_first + j * cols.in_step + u * cols.tap_step;
        if (row < 0 || row >= h || col < 0 || col >= w) continue;
        const bf16* from = image_data + (row * w + col) * c;
        for (int64_t e = 0, at = (t * cols.taps + u) * depth; e < depth; ++e, ++at)
          if (const int64_t block = at / kAmxDepth; block >= blocks.begin && block < blocks.end)
            to[(block - blocks.begin) * kAmxTile + at % kAmxDepth] = from[e];
      }
  }
};

// So few channels that a block of the depth takes several taps of a window of more than one.
inline bool folds(int64_t depth, int64_t taps) { return taps > 1 && depth <= kAmxDepth / 4; }

}  // namespace

RT_ISA_END
