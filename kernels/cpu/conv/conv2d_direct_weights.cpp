// dw (K, R S C) = dy^T (K, pixels) times the patches of x (pixels, R S C), one block of pixels after the other.
#include <algorithm>

#include "kernels/cpu/conv/conv2d.h"
#include "kernels/cpu/conv/conv2d_taps.h"
#include "kernels/cpu/gemm/gemm_pack.h"
#include "kernels/cpu/gemm/gemm_panels.h"
#include "kernels/cpu/vector/isa.h"
#include "kernels/cpu/vector/partials.h"
#include "kernels/cpu/vector/scratch.h"

RT_ISA_BEGIN

namespace {

// The patches of a block, 128 x 256 floats, and its dy stay in the L2 cache.
constexpr int64_t kGradientBlockPixels = 128, kStripPanels = 8;
// The same in bf16, where dw is read and written half as often. Panels of dy have as many rows as those of patches
// columns.
constexpr int64_t kPairedBlockPixels = 256, kPairedStripPanels = 4;
// A small dw cannot occupy all threads. Then each range of pixels has its own dw, and these are added in order. With
// sixteen threads each has four items; the number of ranges never depends on the number of threads.
constexpr int64_t kItems = 64;

// With products of O: the type that T is converted to, or bf16 itself, in pairs of pixels.
template <class T, class O> class WeightGradient {
 public:
  using C = compute_t<T>;
  static constexpr int64_t kWidth = kTileCols<O>;

  WeightGradient(T* dw, const T* dy, const Patches<T, O>& patches, int64_t pixels, int64_t k, int64_t dy_stride)
      : dw_(dw), dy_(dy), patches_(patches), pixels_(pixels), k_(k), dy_stride_(dy_stride), depth_(patches.depth()),
        panels_(ceil_div(depth_, kWidth)),
        ranges_(std::clamp<int64_t>(kItems / panels_, 1, ceil_div(pixels, 2 * kBlockPixels))),
        partial_(!std::is_same_v<T, C> || ranges_ > 1) {}

  void run(Device device) const {
    const int64_t items = ranges_ * panels_, partials = partial_ ? ranges_ * k_ * depth_ : 0;
    const int64_t each = round_up(strip_size() + dy_size(), kLanes<O>);
    const Scratch<C> sums(partials, device);
    const Scratch<O> operands(each * parts_for(items), device);
    parallel_parts(items, [&](int64_t part, Range own) {
      for (int64_t item = own.begin; item < own.end;) {
        const int64_t range = item / panels_, end = std::min(own.end, (range + 1) * panels_);
        C* to = sums.data() + range * k_ * depth_;
        if constexpr (std::is_same_v<T, C>) to = partial_ ? to : dw_;
        accumulate(part_of(pixels_, ranges_, range), {item - range * panels_, end - range * panels_}, to,
                   operands.data() + part * each);
        item = end;
      }
    });
    if (partial_) add_partials(sums.data(), ranges_, k_ * depth_, dw_);
  }

 private:
  static constexpr bool kPairs = std::is_same_v<O, bf16>;
  static constexpr int64_t kBlockPixels = kPairs ? kPairedBlockPixels : kGradientBlockPixels,
                           kStrip = kPairs ? kPairedStripPanels : kStripPanels;

  // An odd number of vectors, so that the rows of a panel use many sets of the L1 cache.
  int64_t patch_stride() const { return std::min(kStrip, panels_) * kWidth + kLanes<O>; }
  // Patches, and the pairs of one panel of them.
  int64_t strip_size() const { return kBlockPixels * (patch_stride() + (kPairs ? kWidth : 0)); }
  int64_t dy_size() const { return kBlockPixels * (kPairs ? round_up(k_, kWidth) : k_); }

  // Computes the panels of dw over the pixels of one range.
  void accumulate(Range pixels, Range panels, C* to, O* scratch) const {
    O *strip = scratch, *packed = strip + strip_size();
    for (int64_t p = pixels.begin; p < pixels.end; p += kBlockPixels) {
      const Range block{p, std::min(p + kBlockPixels, pixels.end)};
      pack_dy(block, packed);
      for (int64_t q = panels.begin; q < panels.end; q += kStrip) {
        const Range depths{q * kWidth, std::min(std::min(q + kStrip, panels.end) * kWidth, depth_)};
        patches_.write(block, depths, strip, patch_stride());
        const Range next{block.end, q == panels.begin ? std::min(block.end + block.size(), pixels.end) : block.end};
        if constexpr (kPairs) multiply_pairs(block.size(), packed, strip, depths, p == pixels.begin, to, next);
        else multiply(block.size(), packed, strip, depths, p == pixels.begin, to, next);
      }
    }
  }

  // Packs tiles of rows of dy^T, a few pixels at a time, so that dy is read roughly in memory order.
  void pack_dy(Range block, O* to) const {
    const T* from = dy_ + block.begin * dy_stride_;
    if constexpr (kPairs) {
      for (int64_t k = 0; k < k_; k += kWidth)
        pack_pairs_of_rows(from + k, dy_stride_, std::min(k_ - k, kWidth), kWidth, block.size(), to + k * kBlockPixels);
    } else {
      constexpr int64_t few = 16;
      const int64_t tiles = ceil_div(k_, kTileRows);
      for (int64_t p = 0; p < block.size(); p += few)
        for (int64_t i = 0; i < tiles; ++i) {
          const Range ks = part_of(k_, tiles, i);
          pack_rows(from + p * dy_stride_ + ks.begin, dy_stride_, ks.size(), ks.size(), std::min(few, block.size() - p),
                    to + ks.begin * block.size() + p * ks.size());
        }
    }
  }

  // Meanwhile it prefetches dy of the pixels `next`.
  void multiply(int64_t count, const O* dy, const O* patches, Range depths, bool first, C* to, Range next) const {
    const int64_t tiles = ceil_div(k_, kTileRows), parts = tiles * ceil_div(depths.size(), kWidth);
    int64_t part = 0;
    for (int64_t j = 0; j < depths.size(); j += kWidth)
      for (int64_t i = 0; i < tiles; ++i) {
        const Range ks = part_of(k_, tiles, i);
        PanelProduct<O> t{};
        t.m = ks.size(), t.n = std::min(depths.size() - j, kWidth), t.k = count;
        t.a = dy + ks.begin * count, t.a_stride = ks.size();
        t.b = patches + j, t.b_step = patch_stride();
        add_product(t, ks.begin, depths.begin + j, first, to);
        prefetch(next, parts, part++);
      }
  }

  void multiply_pairs(int64_t count, const O* dy, O* patches, Range depths, bool first, C* to, Range next) const {
    O* pairs = patches + kBlockPixels * patch_stride();
    const int64_t parts = ceil_div(k_, kWidth) * ceil_div(depths.size(), kWidth);
    int64_t part = 0;
    for (int64_t j = 0; j < depths.size(); j += kWidth) {
      pack_pairs_of_rows(patches + j, patch_stride(), std::min(depths.size() - j, kWidth), kWidth, count, pairs);
      for (int64_t k = 0; k < k_; k += kWidth) {
        PanelProduct<O> t{};
        t.m = std::min(k_ - k, kWidth), t.n = std::min(depths.size() - j, kWidth), t.k = round_up(count, 2);
        t.a = dy + k * kBlockPixels, t.a_stride = kWidth;
        t.b = pairs, t.b_step = kWidth;
        add_product(t, k, depths.begin + j, first, to);
        prefetch(next, parts, part++);
      }
    }
  }

  // Adds it to dw from (k, depth) on.
  void add_product(PanelProduct<O>& t, int64_t k, int64_t depth, bool first, C* to) const {
    t.c = to + k * depth_ + depth, t.c_stride = t.add_stride = depth_;
    t.add = first ? nullptr : t.c;
    multiply_panels(t);
  }
  void prefetch(Range pixels, int64_t parts, int64_t part) const {
    const Range rows = part_of(pixels.size(), parts, part);
    prefetch_rows(dy_ + (pixels.begin + rows.begin) * dy_stride_, dy_stride_, rows.size(), k_);
  }

  T* dw_;
  const T* dy_;
  Patches<T, O> patches_;
  int64_t pixels_, k_, dy_stride_, depth_, panels_, ranges_;
  bool partial_;
};

}  // namespace

void direct_backward_weights(View dw, View dy, View x, Window p) {
  const ConvSizes z(dy, x, dw);
  const Axes axes = forward_axes(z, p);
  with_products(dw.dtype, [&]<class T, class O>() {
    for (int64_t g = 0; g < z.groups; ++g) {
      T* to = dw.as<T>() + g * z.kg * z.taps() * z.cg;
      const Patches<T, O> patches(x.as<T>() + g * z.cg, z.h, z.w, z.c, z.cg, axes.rows, axes.cols);
      if (z.pixels() == 0) std::fill_n(to, z.kg * z.taps() * z.cg, T(0.f));
      else WeightGradient<T, O>(to, dy.as<T>() + g * z.kg, patches, z.pixels(), z.kg, z.k).run(dw.device);
    }
  });
}

RT_ISA_END
