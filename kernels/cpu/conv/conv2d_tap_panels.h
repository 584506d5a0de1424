#pragma once
#include "kernels/cpu/conv/conv2d_operands.h"
#include "kernels/cpu/conv/conv2d_taps.h"
#include "kernels/cpu/gemm/gemm_pack.h"
#include "kernels/cpu/gemm/gemm_panels.h"

RT_ISA_BEGIN

namespace {

// A panel of the weights, 256 x 32 floats, stays in the L1 cache while a block of patches, 224 x 256, is read. Panels
// of pairs are read from the L2 cache.
constexpr int64_t kDirectBlockPixels = 16 * kTileRows, kDirectBlockDepth = 256, kPairedBlockDepth = 640;

// The weights of all taps of a group in panels of kTileCols output channels, as multiply_panels reads them with
// products of O: the type that T is converted to, or bf16 itself, in pairs.
template <class T, class O> class TapPanels {
 public:
  static constexpr bool kPairs = std::is_same_v<O, bf16>;
  static constexpr int64_t kWidth = kTileCols<O>, kAdjacent = kPairs ? 2 : 1,
                           kMaxDepth = kPairs ? kPairedBlockDepth : kDirectBlockDepth;

  TapPanels(const DirectOperands<T>& o, const Axis& rows, const Axis& cols) : o_(o), rows_(rows), cols_(cols) {}

  int64_t depth() const { return rows_.taps * cols_.taps * o_.depth; }
  int64_t count() const { return ceil_div(o_.columns, kWidth); }
  int64_t stride() const { return round_up(depth(), kAdjacent) * kWidth; }

  void pack(int64_t panel, O* to) const {
    const int64_t j = panel * kWidth, count = std::min(o_.columns - j, kWidth);
    for (int64_t t = 0; t < rows_.taps; ++t)
      for (int64_t u = 0; u < cols_.taps; ++u) {
        const int64_t r = rows_.kernel_first + t * rows_.kernel_step, s = cols_.kernel_first + u * cols_.kernel_step;
        const T* from = o_.weights + (r * o_.kernel_w + s) * o_.tap + j * o_.column_stride;
        const int64_t d = (t * cols_.taps + u) * o_.depth;
        if constexpr (!kPairs)
          pack_panel(from, o_.column_stride, o_.depth_stride, count, kWidth, o_.depth, to + d * kWidth);
        else if (o_.depth % 2 == 0)
          pack_pairs(from, o_.column_stride, o_.depth_stride, count, kWidth, o_.depth, to + d * kWidth);
        else pack_odd(from, d, count, to);
      }
    if (kPairs && depth() % 2)
      for (int64_t i = 0; i < kWidth; ++i) to[(depth() - 1) * kWidth + 2 * i + 1] = O(0.f);
  }

 private:
  // One tap, of an odd number of channels, from depth `first` on: pairs have elements of two taps.
  void pack_odd(const T* from, int64_t first, int64_t count, O* to) const {
    for (int64_t p = 0; p < o_.depth; ++p) {
      O* out = to + (first + p) / 2 * 2 * kWidth + (first + p) % 2;
      for (int64_t i = 0; i < kWidth; ++i)
        out[2 * i] = i < count ? O(from[i * o_.column_stride + p * o_.depth_stride]) : O(0.f);
    }
  }

  DirectOperands<T> o_;
  Axis rows_, cols_;
};

}  // namespace

RT_ISA_END
