// Convolution as products of blocks of patches with weights packed beforehand.
#include <algorithm>

#include "kernels/copy.h"
#include "kernels/cpu/conv/conv2d_prepared.h"
#include "kernels/cpu/conv/conv2d_tap_panels.h"
#include "kernels/cpu/vector/isa.h"
#include "kernels/cpu/vector/scratch.h"

RT_ISA_BEGIN

namespace {

// Patches of 112 pixels and their products with a panel stay in the L2 cache.
constexpr int64_t kPixels = 8 * kTileRows, kDepth = 640;
// Rows of a as far apart share so few sets of the L1 cache that patches are written instead.
constexpr int64_t kConflictingStride = 2048;

// With fewer elements of the window in a row of the image, patches cost more than a copy of the image with its margins,
// in which the windows of a row of outputs overlap.
constexpr int64_t kShortRun = 32;

// One group.
template <class T, class O> class PreparedTaps {
 public:
  using C = compute_t<T>;
  using Panels = TapPanels<C, O>;

  PreparedTaps(const PreparedCall& call, int64_t group)
      : z_(sizes_of(call.conv, call.x.dims[0])), axes_(forward_axes(z_, call.conv.window)), finish_(call),
        patches_(call.x.as<T>() + group * z_.cg, z_.h, z_.w, z_.c, z_.cg, axes_.rows, axes_.cols),
        depth_(patches_.depth()), pixels_(z_.pixels()), panels_(ceil_div(z_.kg, kWidth)),
        panel_stride_(round_up(depth_, Panels::kAdjacent) * kWidth),
        weights_(call.conv.w.data<O>() + group * panels_ * panel_stride_), in_(call.x.as<T>() + group * z_.cg),
        y_(call.y.as<T>()), first_(group * z_.kg),
        in_place_(std::is_same_v<T, O> && patches_.in_place() && depth_ % Panels::kAdjacent == 0 &&
                  z_.c * int64_t(sizeof(T)) % kConflictingStride != 0),
        in_image_(std::is_same_v<O, float> && z_.groups == 1 && call.conv.window.dilation_w == 1 &&
                  z_.s * z_.c <= kShortRun),
        block_depth_(in_image_ ? depth_ : round_up(ceil_div(depth_, ceil_div(depth_, kDepth)), kLanes<O>)) {
    const int64_t team = parts_for(threads());
    by_panel_ = !in_image_ && pixels_ < team * kFewTiles * kTileRows && panels_ > 1;
    block_pixels_ = in_image_ ? std::max<int64_t>(z_.wo, 1)
                              : std::clamp(round_up(ceil_div(pixels_, by_panel_ ? 1 : team), kTileRows),
                                           int64_t{kTileRows}, kPixels);
  }

  void run() const {
    const int64_t blocks = ceil_div(pixels_, block_pixels_), parts = parts_for(by_panel_ ? panels_ : blocks);
    const Scratch<O> inputs(in_image_ ? z_.n * padded_h() * padded_row() : patch_size() * parts, Device{});
    const Scratch<C> sums(stage_size() * parts, Device{});
    if (in_image_) pad(inputs.data());
    parallel_parts(by_panel_ ? panels_ : blocks, [&](int64_t part, Range own) {
      const Range panels = by_panel_ ? own : Range{0, panels_};
      O* const input = inputs.data() + (in_image_ ? 0 : part * patch_size());
      for (int64_t b = by_panel_ ? 0 : own.begin; b < (by_panel_ ? blocks : own.end); ++b)
        run_block({b * block_pixels_, std::min((b + 1) * block_pixels_, pixels_)}, panels, input,
                  sums.data() + part * stage_size());
    });
  }

 private:
  static constexpr int64_t kWidth = Panels::kWidth, kFewTiles = 4;
  static constexpr bool kStaged = !std::is_same_v<T, C>;

  // Not a multiple of 1 KiB, for which rows would share a few sets of the L1 cache.
  int64_t patch_stride() const {
    return block_depth_ * int64_t(sizeof(O)) % 1024 ? block_depth_ : block_depth_ + kLanes<O>;
  }
  int64_t patch_size() const { return in_place_ ? 0 : round_up(block_pixels_ * patch_stride(), kLanes<O>); }
  int64_t stage_size() const { return kStaged ? block_pixels_ * panels_ * kWidth : 0; }

  // Images with zeros around them.
  int64_t padded_h() const { return z_.h + 2 * axes_.rows.pad(); }
  int64_t padded_row() const { return (z_.w + 2 * axes_.cols.pad()) * z_.c; }
  void pad(O* to) const {
    const int64_t row = padded_row(), margin = axes_.cols.pad() * z_.c, top = axes_.rows.pad();
    if constexpr (std::is_same_v<O, C>)
      parallel_for(z_.n * padded_h(), 64, [&](int64_t begin, int64_t end) {
        for (int64_t q = begin; q < end; ++q) {
          const int64_t n = q / padded_h(), i = q % padded_h() - top;
          const bool inside = i >= 0 && i < z_.h;
          O* out = to + q * row;
          fill_zero(out, inside ? margin : row);
          if (!inside) continue;
          copy_converted(in_ + (n * z_.h + i) * z_.w * z_.c, z_.w * z_.c, out + margin);
          fill_zero(out + row - margin, margin);
        }
      });
  }

  void run_block(Range pixels, Range panels, O* input, C* stage) const {
    PanelProduct<O> t{};
    const int64_t column = panels.begin * kWidth, to = pixels.begin * z_.k + first_ + column;
    t.m = pixels.size(), t.n = std::min(z_.kg, panels.end * kWidth) - column;
    t.along_k = true;
    t.panel_stride = panel_stride_, t.b_step = kWidth;
    t.c_stride = kStaged ? panels_ * kWidth : z_.k;
    if constexpr (kStaged) t.c = stage;
    else t.c = y_ + to;
    for (int64_t d = 0; d < depth_; d += block_depth_) {
      const Range depths{d, std::min(d + block_depth_, depth_)};
      read_input(pixels, depths, input, t);
      t.b = weights_ + panels.begin * panel_stride_ + d * kWidth;
      t.add = d ? t.c : nullptr, t.add_stride = t.c_stride;
      if constexpr (!kStaged) {
        if (d == 0) t.add = finish_.bias + first_ + column, t.add_stride = 0;
        t.residual = d == 0 && finish_.residual ? finish_.residual + to : nullptr;
        t.relu = finish_.relu && depths.end == depth_;
      }
      multiply_panels(t);
    }
    if constexpr (kStaged) write_out(pixels, column, t, stage);
  }

  void read_input(Range pixels, Range depths, O* input, PanelProduct<O>& t) const {
    t.k = round_up(depths.size(), Panels::kAdjacent);
    if (in_image_) {  // all of the depth
      const int64_t line = pixels.begin / z_.wo, n = line / z_.ho, i = line % z_.ho;
      t.k = z_.s * z_.c, t.runs = z_.r, t.run_step = axes_.rows.tap_step * padded_row();
      t.a = input + (n * padded_h() + i * axes_.rows.in_step) * padded_row(), t.a_stride = axes_.cols.in_step * z_.c;
      return;
    }
    if constexpr (std::is_same_v<T, O>)
      if (in_place_) {
        t.a = in_ + pixels.begin * z_.c + depths.begin, t.a_stride = z_.c, t.fetch = true;
        return;
      }
    t.a = input, t.a_stride = patch_stride();
    patches_.write(pixels, depths, input, t.a_stride);
    if (t.k > depths.size())
      for (int64_t i = 0; i < t.m; ++i) input[i * t.a_stride + t.k - 1] = O(0.f);
  }

  void write_out(Range pixels, int64_t column, const PanelProduct<O>& t, const C* stage) const {
    for (int64_t p = pixels.begin; p < pixels.end; ++p, stage += t.c_stride)
      for (int64_t k = 0; k < t.n; k += kLanes<C>) {
        const int64_t at = p * z_.k + first_ + column + k, count = std::min<int64_t>(t.n - k, kLanes<C>);
        store_converted(y_ + at, finish_(load(stage + k), at, first_ + column + k, count), count);
      }
  }

  ConvSizes z_;
  Axes axes_;
  Finish<T> finish_;
  Patches<T, O> patches_;
  int64_t depth_, pixels_, panels_, panel_stride_;
  const O* weights_;
  const T* in_;
  T* y_;
  int64_t first_;
  bool in_place_, in_image_;
  int64_t block_depth_, block_pixels_;
  bool by_panel_;
};

template <class O> void pack_taps(const View& w, PreparedConv& conv) {
  const ConvSizes z = sizes_of(conv, 1);
  const Axes axes = forward_axes(z, conv.window);
  const auto panels_of = [&](int64_t group) {
    return TapPanels<O, O>(forward_operands<O>(images_of(1, conv.output), images_of(1, conv.image), w, View{}, group),
                           axes.rows, axes.cols);
  };
  const int64_t panels = panels_of(0).count(), stride = panels_of(0).stride();
  conv.w = Tensor({z.groups * panels * stride}, dtype_of<O>::value);
  parallel_for(z.groups * panels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t q = begin; q < end; ++q) panels_of(q / panels).pack(q % panels, conv.w.data<O>() + q * stride);
  });
}

}  // namespace

void pack_direct(View w, PreparedConv& conv) {
  if (!by_unit(conv)) return pack_taps<float>(w, conv);
  const Tensor narrow(conv.weights, DType::bf16);
  copy(narrow, w);
  pack_taps<bf16>(narrow, conv);
}

void run_direct(const PreparedCall& call) {
  const auto run = [&]<class T, class O>() {
    for (int64_t g = 0; g < call.conv.image[2] / call.conv.weights[3]; ++g) PreparedTaps<T, O>(call, g).run();
  };
  if (by_unit(call.conv)) return run.template operator()<bf16, bf16>();
  dispatch_float(call.conv.dtype, [&]<class T>() {
    if constexpr (!std::is_same_v<T, double>) run.template operator()<T, float>();
  });
}

RT_ISA_END
