#pragma once
#include <algorithm>

#include "kernels/cpu/conv/conv2d_prepared.h"
#include "kernels/cpu/conv/winograd_panels.h"
#include "kernels/cpu/conv/winograd_tiles.h"
#include "kernels/cpu/gemm/gemm_panels.h"
#include "kernels/cpu/vector/scratch.h"

// Winograd convolution with weights transformed beforehand.
RT_ISA_BEGIN

namespace {

template <class T, class Operand, class Rows, class Cols> class PreparedWinograd {
 public:
  using Panels = WinogradPanels<float, Operand, Rows, Cols>;
  using O = typename Panels::O;

  static void pack(const View& w, PreparedConv& conv) {
    const ConvSizes z = sizes_of(conv, 1);
    const Panels panels(w.as<float>(), z.c, z.k, false);
    conv.w = Tensor({panels.count() * panel_size(z.c)}, dtype_of<O>::value);
    panels.transform_all(conv.w.data<O>());
  }

  explicit PreparedWinograd(const PreparedCall& call)
      : finish_(call), u_(call.conv.w.data<O>()), x_(call.x.as<T>()), y_(call.y.as<T>()),
        z_(sizes_of(call.conv, call.x.dims[0])), pad_h_(call.conv.window.pad_h),
        pad_w_(call.conv.window.pad_w), tiles_{z_.n, z_.ho, z_.wo, Rows::out, Cols::out},
        depth_(round_up(z_.c, kLanes<float>)), panels_(ceil_div(z_.k, kWidth)),
        width_(std::min(kWidth, round_up(z_.k, kLanes<float>))) {
    const int64_t team = parts_for(threads()), weights = panels_ * panel_size(z_.c) * int64_t(sizeof(O)),
                  tile = kPoints * (depth_ * int64_t(sizeof(O)) + width_ * int64_t(sizeof(float))),
                  most = std::max<int64_t>(std::clamp(weights / 4, kBlockBytes, kMostBytes) / tile, 1);
    by_panel_ = team > 1 && panels_ > 1 && tiles_.count() < team * kFewTiles;
    blocks_ = std::max(ceil_div(tiles_.count(), most), by_panel_ ? 1 : std::min(team, tiles_.count()));
    block_ = ceil_div(tiles_.count(), std::max<int64_t>(blocks_, 1));
  }

  void run() const {
    if (tiles_.count() == 0) return;
    const int64_t parts = parts_for(by_panel_ ? panels_ : blocks_), v_each = kPoints * v_stride(),
                  m_each = kPoints * m_stride();
    const Scratch<O> operands(depth_ + (by_panel_ ? 1 : parts) * v_each, Device{});
    const Scratch<float> sums(parts * m_each, Device{});
    O* const v = operands.data() + depth_;
    float* const m = sums.data();
    std::fill_n(operands.data(), depth_, O(0.f));
    const TiledImages<T> in{x_, z_.h, z_.w, z_.c, reinterpret_cast<const T*>(operands.data())};
    if (!by_panel_)
      return parallel_parts(blocks_, [&](int64_t part, Range own) {
        for (int64_t b = own.begin; b < own.end; ++b) {
          const Range tiles = part_of(tiles_.count(), blocks_, b);
          transform_input(in, tiles, v + part * v_each);
          run_panels(tiles, {0, panels_}, v + part * v_each, m + part * m_each);
        }
      });
    for (int64_t b = 0; b < blocks_; ++b) {
      const Range tiles = part_of(tiles_.count(), blocks_, b);
      parallel_for(tiles.size(), 1, [&](int64_t begin, int64_t end) {
        transform_input(in, {tiles.begin + begin, tiles.begin + end}, v + begin * depth_);
      });
      parallel_parts(panels_, [&](int64_t part, Range own) { run_panels(tiles, own, v, m + part * m_each); });
    }
  }

 private:
  static constexpr int kPoints = Panels::kPoints;
  static constexpr int64_t kWidth = Panels::kWidth, kPad = Panels::kPad;
  // V and M of a block stay in the L2 cache, unless the weights are far larger: they are read once per block.
  static constexpr int64_t kBlockBytes = 512 << 10, kMostBytes = 4 << 20;
  static constexpr int64_t kFewTiles = 2 * kTileRows;  // of a thread: fewer, and threads divide the weights instead

  static int64_t panel_size(int64_t c) { return kPoints * Panels::stride(round_up(c, kLanes<float>)); }
  // Strides between points, padded so that the points do not share a few sets of the L1 cache.
  int64_t v_stride() const { return block_ * depth_ + kPad; }
  int64_t m_stride() const { return block_ * width_ + kLanes<float>; }

  // What loops read is copied: stores to V, M or y could change members.
  void transform_input(const TiledImages<T>& images, Range tiles, O* v) const {
    const TiledImages<T> in = images;
    const int64_t channels = z_.c, stride = v_stride();
    for (int64_t t = tiles.begin; t < tiles.end; ++t, v += depth_) {
      const TileGrid::Place at = tiles_[t];
      const TileElements<Rows::in, Cols::in, T> tile(in, in.image(at.image), at.top - pad_h_, at.left - pad_w_);
      for (int64_t c = 0; c < channels; c += kLanes<float>)
        tile.template transform<typename Rows::Input, typename Cols::Input>(
            c, [&, to = v + c](int point, Vec<float> x) { Operand::store(to + point * stride, x); });
    }
  }

  void run_panels(Range tiles, Range panels, const O* v, float* m) const {
    PanelProduct<O> t{};
    t.m = tiles.size(), t.k = round_up(z_.c, Operand::adjacent);
    t.a_stride = depth_, t.along_k = true;
    t.b_step = kWidth;
    t.c_stride = width_;
    for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
      t.n = std::min(kWidth, round_up(z_.k - panel * kWidth, kLanes<float>));
      for (int point = 0; point < kPoints; ++point) {
        t.a = v + point * v_stride();
        t.b = u_ + panel * panel_size(z_.c) + point * Panels::stride(depth_);
        t.c = m + point * m_stride();
        multiply_panels(t);
      }
      write_out(tiles, panel, m);
    }
  }

  void write_out(Range block, int64_t panel, const float* m) const {
    constexpr int lanes = kLanes<float>;
    for (int64_t tile = block.begin; tile < block.end; ++tile, m += width_)
      for (int64_t v = 0; v < width_ / lanes; ++v)
        if (const int64_t column = panel * kWidth + v * lanes; column < z_.k)
          write_tile(tiles_[tile], column, m + v * lanes);
  }

  void write_tile(TileGrid::Place at, int64_t column, const float* m) const {
    using RowsOut = typename Rows::Output;
    using ColsOut = typename Cols::Output;
    constexpr int lanes = kLanes<float>;
    const int64_t rows = std::min<int64_t>(z_.ho - at.top, Rows::out),
                  cols = std::min<int64_t>(z_.wo - at.left, Cols::out), count = std::min<int64_t>(z_.k - column, lanes),
                  m_step = m_stride(), col_step = z_.k, row_step = z_.wo * z_.k,
                  first = (at.image * z_.ho + at.top) * row_step + at.left * col_step + column;
    const Finish<T> finish = finish_;
    T* const y = y_;
    const auto read = [&](int i, int j) { return load(m + (i * Cols::in + j) * m_step); };
    const auto write = [&](int i, int j, Vec<float> sum, int64_t part) RT_INLINE_LAMBDA {
      const int64_t to = first + i * row_step + j * col_step;
      Operand::store_result(y + to, finish(sum, to, column, part), part);
    };
    if (rows == Rows::out && cols == Cols::out && count == lanes)
      transform_tile<RowsOut, ColsOut>(read, [&](int i, int j, Vec<float> sum) { write(i, j, sum, lanes); });
    else
      transform_tile<RowsOut, ColsOut>(read, [&](int i, int j, Vec<float> sum) {
        if (i < rows && j < cols) write(i, j, sum, count);
      });
  }

  Finish<T> finish_;
  const O* u_;
  const T* x_;
  T* y_;
  ConvSizes z_;
  int64_t pad_h_, pad_w_;
  TileGrid tiles_;
  int64_t depth_, panels_, width_;  // of V, and of M
  bool by_panel_;
  int64_t blocks_, block_;  // of so many tiles at most
};

}  // namespace

RT_ISA_END
