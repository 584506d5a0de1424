#pragma once
#include <algorithm>

#include "kernels/cpu/conv/conv2d.h"
#include "kernels/cpu/conv/winograd_panels.h"
#include "kernels/cpu/conv/winograd_tiles.h"
#include "kernels/cpu/gemm/gemm_panels.h"
#include "kernels/cpu/vector/scratch.h"

// Winograd convolution: forward, and backward data as forward with rotated and transposed weights.
RT_ISA_BEGIN

namespace {

// If there are few tiles or many weights, threads divide the panels instead of the blocks.
constexpr int64_t kFewTiles = 160, kManyWeights = 1 << 17, kSharedBlockTiles = 256;

// out (n, out_h, out_w, columns) from in (n, h, w, depth); w is (K, 3, 3, C), with
// depth = K and columns = C if `turned`.
template <class T> struct WinogradOperands {
  const T* in;
  int64_t n, h, w, depth;
  T* out;
  int64_t out_h, out_w, columns;
  const T* weights;
  bool turned;
  const T* bias;
  int64_t pad_h, pad_w;
  PixelNorm norm = {};  // of `in`
};

template <class T>
WinogradOperands<T> winograd_forward_operands(const View& y, const View& x, const View& w, const View& b,
                                              const Window& p, const PixelNorm& of_x) {
  const ConvSizes z(y, x, w);
  return {.in = x.as<T>(),
          .n = z.n,
          .h = z.h,
          .w = z.w,
          .depth = z.c,
          .out = y.as<T>(),
          .out_h = z.ho,
          .out_w = z.wo,
          .columns = z.k,
          .weights = w.as<T>(),
          .turned = false,
          .bias = b.as<T>(),
          .pad_h = p.pad_h,
          .pad_w = p.pad_w,
          .norm = of_x};
}

template <class T>
WinogradOperands<T> winograd_backward_operands(const View& dx, const View& dy, const View& w, const Window& p) {
  const ConvSizes z(dy, dx, w);
  return {.in = dy.as<T>(),
          .n = z.n,
          .h = z.ho,
          .w = z.wo,
          .depth = z.k,
          .out = dx.as<T>(),
          .out_h = z.h,
          .out_w = z.w,
          .columns = z.c,
          .weights = w.as<T>(),
          .turned = true,
          .bias = nullptr,
          .pad_h = kTaps - 1 - p.pad_h,
          .pad_w = kTaps - 1 - p.pad_w};
}

// For each block of tiles: V = B^T d B for all channels. Then for each panel of output channels the products M = V U of
// all points, and the output. By block: each thread takes some of the blocks, and all weights are transformed
// beforehand. By panel: each thread takes some of the panels of every block, and transforms their weights when it needs
// them. U is several times as large as the weights, and with 512 channels it would have to come from memory.
// Rows and Cols are F43 or F23.
template <class T, class Operand, class Rows, class Cols> class Winograd {
 public:
  explicit Winograd(const WinogradOperands<T>& o)
      : o_(o), u_panels_(o.weights, o.depth, o.columns, o.turned), tiles_{o.n, o.out_h, o.out_w, Rows::out, Cols::out},
        depth_(round_up(o.depth, kLanes<float>)), panels_(u_panels_.count()) {
    by_panel_ = (tiles_.count() <= kFewTiles && panels_ > 1) || o.depth * o.columns >= kManyWeights;
    block_ = by_panel_ ? std::min(tiles_.count(), kSharedBlockTiles)
                       : Operand::block_tiles(o.depth) * (F43::out * F43::out) / (Rows::out * Cols::out);
    block_depth_ = std::min(depth_, by_panel_ ? Operand::own_product_depth : Operand::product_depth);
  }

  void run(Device device) const {
    if (tiles_.count() == 0) return;
    const int64_t blocks = ceil_div(tiles_.count(), block_), zeros = depth_,
                  weights = by_panel_ ? 0 : panels_ * panel_size(), v_each = kPoints * v_stride(),
                  u_each = by_panel_ ? kPoints * u_stride() : 0, m_each = kPoints * m_stride();
    const int64_t parts = parts_for(by_panel_ ? panels_ : blocks), v_parts = by_panel_ ? 1 : parts;
    const Scratch<O> operands(zeros + weights + v_parts * v_each + parts * u_each, device);
    const Scratch<float> sums(parts * m_each, device);
    O *u = operands.data() + zeros, *v = u + weights, *own_u = v + v_parts * v_each;
    float* m = sums.data();
    std::fill_n(operands.data(), zeros, O(0.f));
    const TiledImages<T> in{o_.in, o_.h, o_.w, o_.depth, reinterpret_cast<const T*>(operands.data())};
    const std::optional<Normalize<T>> normalize = normalize_of<T>(in.h * in.w, in.c, o_.norm);
    const auto block = [&](int64_t b) { return Range{b * block_, std::min((b + 1) * block_, tiles_.count())}; };
    if (by_panel_) {
      for (int64_t b = 0; b < blocks; ++b) {
        transform_input(in, normalize, block(b), v);
        parallel_parts(panels_, [&](int64_t part, Range own) {
          for (int64_t q = own.begin; q < own.end; ++q)
            run_panel(block(b), q, v, own_u + part * u_each, m + part * m_each);
        });
      }
    } else {
      u_panels_.transform_all(u);
      parallel_parts(blocks, [&](int64_t part, Range own) {
        for (int64_t b = own.begin; b < own.end; ++b) {
          transform_input(in, normalize, block(b), v + part * v_each);
          for (int64_t q = 0; q < panels_; ++q)
            run_panel(block(b), q, v + part * v_each, u + q * panel_size(), m + part * m_each);
        }
      });
    }
  }

 private:
  using Panels = WinogradPanels<T, Operand, Rows, Cols>;
  using O = typename Panels::O;
  static constexpr int kPoints = Panels::kPoints;
  static constexpr int64_t kWidth = Panels::kWidth, kPad = Panels::kPad;

  // Strides between points, padded so that the points do not share a few sets of the L1 cache.
  int64_t v_stride() const { return block_ * depth_ + kPad; }
  int64_t m_stride() const { return block_ * kWidth + kLanes<float>; }
  int64_t u_stride() const { return Panels::stride(by_panel_ ? block_depth_ : depth_); }
  int64_t panel_size() const { return kPoints * u_stride(); }

  // What loops read is copied: stores to V or to the output could change members.
  void transform_input(const TiledImages<T>& in, const std::optional<Normalize<T>>& normalize, Range block,
                       O* v) const {
    parallel_for(block.size(), 4, [&](int64_t begin, int64_t end) {
      const int64_t channels = o_.depth, stride = v_stride();
      ImageReader<T> read(in, normalize);
      for (int64_t t = begin; t < end; ++t) {
        const TileGrid::Place at = tiles_[block.begin + t];
        const int64_t top = at.top - o_.pad_h;
        const TileElements<Rows::in, Cols::in, T> tile(in, read.image(at.image, top, top + Rows::in), top,
                                                       at.left - o_.pad_w);
        O* out = v + t * depth_;
        for (int64_t c = 0; c < channels; c += kLanes<float>)
          tile.template transform<typename Rows::Input, typename Cols::Input>(
              c, [&](int point, Vec<float> x) { Operand::store(out + c + point * stride, x); });
      }
    });
  }

  void run_panel(Range block, int64_t panel, const O* v, O* u, float* m) const {
    PanelProduct<O> t{};
    t.m = block.size(), t.n = std::min(kWidth, round_up(o_.columns - panel * kWidth, kLanes<float>));
    t.a_stride = depth_, t.along_k = true;
    t.b_step = kWidth;
    t.add_stride = t.c_stride = kWidth;
    for (int64_t d = 0; d < o_.depth; d += block_depth_) {
      const int64_t end = std::min(d + block_depth_, o_.depth);
      t.k = round_up(end - d, Operand::adjacent);
      if (by_panel_) u_panels_.transform(panel, {d, end}, u, u_stride());
      for (int point = 0; point < kPoints; ++point) {
        t.a = v + point * v_stride() + d;
        t.b = u + point * u_stride() + (by_panel_ ? 0 : d * kWidth);
        t.c = m + point * m_stride();
        t.add = d ? t.c : nullptr;
        multiply_panels(t);
      }
    }
    write_out(block, panel, m);
  }

  void write_out(Range block, int64_t panel, const float* m) const {
    constexpr int lanes = kLanes<float>;
    const int64_t m_step = m_stride(), col_step = o_.columns, row_step = o_.out_w * o_.columns;
    for (int64_t tile = block.begin; tile < block.end; ++tile, m += kWidth) {
      const TileGrid::Place at = tiles_[tile];
      const int64_t rows = std::min<int64_t>(o_.out_h - at.top, Rows::out),
                    cols = std::min<int64_t>(o_.out_w - at.left, Cols::out);
      for (int64_t v = 0; v < kWidth / lanes; ++v) {
        const int64_t column = panel * kWidth + v * lanes, count = std::min<int64_t>(o_.columns - column, lanes);
        if (count <= 0) continue;
        T* out = o_.out + ((at.image * o_.out_h + at.top) * o_.out_w + at.left) * o_.columns + column;
        const Vec<float> bias = o_.bias ? load_converted(o_.bias + column, count) : Vec<float>{};
        const auto read = [&](int i, int j) { return load(m + (i * Cols::in + j) * m_step + v * lanes); };
        const auto to = [&](int i, int j) { return out + i * row_step + j * col_step; };
        using RowsOut = typename Rows::Output;
        using ColsOut = typename Cols::Output;
        if (rows == Rows::out && cols == Cols::out && count == lanes)
          transform_tile<RowsOut, ColsOut>(
              read, [&](int i, int j, Vec<float> y) { Operand::store_result(to(i, j), y + bias, lanes); });
        else
          transform_tile<RowsOut, ColsOut>(read, [&](int i, int j, Vec<float> y) {
            if (i < rows && j < cols) Operand::store_result(to(i, j), y + bias, count);
          });
      }
    }
  }

  WinogradOperands<T> o_;
  Panels u_panels_;
  TileGrid tiles_;
  int64_t depth_, panels_, block_, block_depth_;
  bool by_panel_;
};

}  // namespace

RT_ISA_END
