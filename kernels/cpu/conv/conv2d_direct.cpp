// Convolution as products of blocks of patches with packed weights. Backward data is one convolution for each phase of
// the strides.
#include <algorithm>
#include <vector>

#include "kernels/cpu/conv/conv2d.h"
#include "kernels/cpu/conv/conv2d_operands.h"
#include "kernels/cpu/conv/conv2d_tap_panels.h"
#include "kernels/cpu/conv/conv2d_taps.h"
#include "kernels/cpu/gemm/gemm_panels.h"
#include "kernels/cpu/vector/isa.h"
#include "kernels/cpu/vector/scratch.h"

RT_ISA_BEGIN

namespace {

// With products of O: the type that T is converted to, or bf16 itself, in pairs.
template <class T, class O> class TapConvolution {
 public:
  using C = compute_t<T>;
  static constexpr int64_t kWidth = kTileCols<O>;

  TapConvolution(const DirectOperands<T>& o, const Axis& rows, const Axis& cols)
      : o_(o), rows_(rows), cols_(cols), weights_(o, rows, cols), patches_(o.in, o.h, o.w, o.c, o.depth, rows, cols),
        depth_(patches_.depth()), pixels_(o.n * rows.places * cols.places), panels_(weights_.count()),
        staged_(!std::is_same_v<T, C> || rows.out_step != 1 || cols.out_step != 1),
        in_place_(std::is_same_v<T, O> && patches_.in_place() && depth_ % kAdjacent == 0),
        block_depth_(round_up(ceil_div(depth_, std::max<int64_t>(ceil_div(depth_, kMaxDepth), 1)), kLanes<O>)),
        block_pixels_(
            std::clamp(round_up(ceil_div(pixels_, threads()), kTileRows), int64_t{kTileRows}, kDirectBlockPixels)) {}

  void run(Device device) const {
    if (pixels_ == 0) return;
    if (depth_ == 0)
      return parallel_for(pixels_, 256, [&](int64_t begin, int64_t end) { write_out({begin, end}, nullptr, 0); });
    const int64_t packed = panels_ * weights_.stride(), bias_size = o_.bias ? panels_ * kWidth : 0;
    const int64_t blocks = ceil_div(pixels_, block_pixels_), parts = parts_for(blocks);
    const Scratch<O> operands(packed + patch_size() * parts, device);
    const Scratch<C> sums(bias_size + stage_size() * parts, device);
    O *weights = operands.data(), *patches = weights + packed;
    C *bias = sums.data(), *stage = bias + bias_size;
    parallel_for(panels_, std::max<int64_t>(1, (1 << 14) / (kWidth * depth_ + 1)), [&](int64_t begin, int64_t end) {
      for (int64_t q = begin; q < end; ++q) weights_.pack(q, weights + q * weights_.stride());
    });
    if (o_.bias) copy_converted(o_.bias, o_.columns, bias);
    parallel_parts(blocks, [&](int64_t part, Range own) {
      for (int64_t b = own.begin; b < own.end; ++b)
        run_block({b * block_pixels_, std::min((b + 1) * block_pixels_, pixels_)}, weights, o_.bias ? bias : nullptr,
                  patches + part * patch_size(), stage + part * stage_size());
    });
  }

 private:
  static constexpr bool kPairs = TapPanels<T, O>::kPairs;
  static constexpr int64_t kAdjacent = TapPanels<T, O>::kAdjacent, kMaxDepth = TapPanels<T, O>::kMaxDepth;

  // Not a multiple of 1 KiB, for which rows would share a few sets of the L1 cache.
  int64_t patch_stride() const {
    return block_depth_ * int64_t(sizeof(O)) % 1024 ? block_depth_ : block_depth_ + kLanes<O>;
  }
  int64_t patch_size() const { return in_place_ ? 0 : round_up(block_pixels_ * patch_stride(), kLanes<O>); }
  int64_t stage_size() const { return staged_ ? round_up(block_pixels_ * panels_ * kWidth, kLanes<C>) : 0; }

  void run_block(Range pixels, const O* weights, const C* bias, O* patches, C* stage) const {
    PanelProduct<O> t{};
    t.m = pixels.size(), t.n = o_.columns;
    t.along_k = true;
    t.panel_stride = weights_.stride(), t.b_step = kWidth;
    t.c_stride = staged_ ? panels_ * kWidth : o_.out_c;
    if constexpr (std::is_same_v<T, C>) t.c = o_.out + pixels.begin * o_.out_c;
    if (staged_) t.c = stage;
    for (int64_t d = 0; d < depth_; d += block_depth_) {
      const Range depths{d, std::min(d + block_depth_, depth_)};
      t.k = round_up(depths.size(), kAdjacent);
      t.a = patches, t.a_stride = patch_stride();
      if constexpr (std::is_same_v<T, O>)
        if (in_place_) t.a = o_.in + pixels.begin * o_.c + d, t.a_stride = o_.c, t.fetch = true;
      if (!in_place_) patches_.write(pixels, depths, patches, t.a_stride);
      if (!in_place_ && t.k > depths.size())
        for (int64_t i = 0; i < t.m; ++i) patches[i * t.a_stride + t.k - 1] = O(0.f);
      t.b = weights + d * kWidth;
      t.add = d ? t.c : bias, t.add_stride = d ? t.c_stride : 0;
      multiply_panels(t);
    }
    if (staged_) write_out(pixels, stage, t.c_stride);
  }

  // A null stage writes zeros, for elements without a tap.
  void write_out(Range pixels, const C* stage, int64_t stride) const {
    if constexpr (kPairs)
      if (stage && rows_.out_step == 1 && cols_.out_step == 1)
        return round_sums(pixels.size(), o_.columns, stage, stride, o_.out + pixels.begin * o_.out_c, o_.out_c);
    Place at(pixels.begin, rows_.places, cols_.places);
    for (int64_t p = pixels.begin; p < pixels.end; ++p, stage += stride, at.advance(rows_.places, cols_.places)) {
      const int64_t row = rows_.out_first + at.i * rows_.out_step, col = cols_.out_first + at.j * cols_.out_step;
      T* to = o_.out + ((at.n * o_.out_h + row) * o_.out_w + col) * o_.out_c;
      if (!stage) std::fill_n(to, o_.columns, T(0.f));
      else if constexpr (kPairs) round_sums(1, o_.columns, stage, 0, to, 0);
      else
        for (int64_t k = 0; k < o_.columns; k += kLanes<C>) store_converted(to + k, load(stage + k), o_.columns - k);
    }
  }

  DirectOperands<T> o_;
  Axis rows_, cols_;
  TapPanels<T, O> weights_;
  Patches<T, O> patches_;
  int64_t depth_, pixels_, panels_;
  bool staged_, in_place_;
  int64_t block_depth_, block_pixels_;
};

}  // namespace

void direct_forward(View y, View x, View w, View b, Window p) {
  const ConvSizes z(y, x, w);
  const Axes axes = forward_axes(z, p);
  with_products(y.dtype, [&]<class T, class O>() {
    for (int64_t g = 0; g < z.groups; ++g)
      TapConvolution<T, O>(forward_operands<T>(y, x, w, b, g), axes.rows, axes.cols).run(y.device);
  });
}

void direct_backward_data(View dx, View dy, View w, Window p) {
  const ConvSizes z(dy, dx, w);
  const std::vector<Axes> phases = backward_phases(z, p);
  with_products(dx.dtype, [&]<class T, class O>() {
    for (int64_t g = 0; g < z.groups; ++g)
      for (const Axes& phase : phases)
        TapConvolution<T, O>(backward_operands<T>(dx, dy, w, g), phase.rows, phase.cols).run(dx.device);
  });
}

RT_ISA_END
