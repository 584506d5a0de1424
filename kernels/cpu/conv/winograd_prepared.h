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
        depth_(round_up(z_.c, kLanes<float>)), panels_(ceil_div(z_.k, kWidth)) {
    const int64_t most = std::max<int64_t>(kBlockBytes / (kPoints * depth_ * int64_t(sizeof(O))), 1);
    const int64_t blocks = ceil_div(tiles_.count(), most);
    block_ = blocks ? ceil_div(tiles_.count(), blocks) : 0;
  }

  void run() const {
    if (tiles_.count() == 0) return;
    const int64_t blocks = ceil_div(tiles_.count(), block_);
    const bool by_panel = blocks < threads() && panels_ > 1;
    const int64_t parts = parts_for(by_panel ? panels_ : blocks), v_each = kPoints * v_stride(),
                  m_each = kPoints * m_stride(), v_parts = by_panel ? 1 : parts;
    const Scratch<O> operands(depth_ + v_parts * v_each, Device{});
    const Scratch<float> sums(parts * m_each, Device{});
    O* v = operands.data() + depth_;
    float* m = sums.data();
    std::fill_n(operands.data(), depth_, O(0.f));
    const TiledImages<T> in{x_, z_.h, z_.w, z_.c, reinterpret_cast<const T*>(operands.data())};
    const auto block = [&](int64_t b) { return Range{b * block_, std::min((b + 1) * block_, tiles_.count())}; };
    if (by_panel) {
      for (int64_t b = 0; b < blocks; ++b) {
        parallel_for(block(b).size(), 1, [&](int64_t begin, int64_t end) {
          transform_input(in, {block(b).begin + begin, block(b).begin + end}, v + begin * depth_);
        });
        parallel_parts(panels_, [&](int64_t part, Range own) {
          for (int64_t q = own.begin; q < own.end; ++q) run_panel(block(b), q, v, m + part * m_each);
        });
      }
    } else {
      parallel_parts(blocks, [&](int64_t part, Range own) {
        for (int64_t b = own.begin; b < own.end; ++b) {
          transform_input(in, block(b), v + part * v_each);
          for (int64_t q = 0; q < panels_; ++q) run_panel(block(b), q, v + part * v_each, m + part * m_each);
        }
      });
    }
  }

 private:
  static constexpr int kPoints = Panels::kPoints;
  static constexpr int64_t kWidth = Panels::kWidth, kPad = Panels::kPad;
  static constexpr int64_t kBlockBytes = 400 << 10;  // of V

  static int64_t panel_size(int64_t c) { return kPoints * Panels::stride(round_up(c, kLanes<float>)); }
  // Strides between points, padded so that the points do not share a few sets of the L1 cache.
  int64_t v_stride() const { return block_ * depth_ + kPad; }
  int64_t m_stride() const { return block_ * kWidth + kLanes<float>; }

  void transform_input(const TiledImages<T>& in, Range tiles, O* v) const {
    for (int64_t t = tiles.begin; t < tiles.end; ++t, v += depth_) {
      const TileGrid::Place at = tiles_[t];
      const TileElements<Rows::in, Cols::in, T> tile(in, at.image, at.top - pad_h_, at.left - pad_w_);
      for (int64_t c = 0; c < z_.c; c += kLanes<float>)
        tile.template transform<typename Rows::Input, typename Cols::Input>(
            c, [&](int point, Vec<float> x) { Operand::store(v + c + point * v_stride(), x); });
    }
  }

  void run_panel(Range block, int64_t panel, const O* v, float* m) const {
    PanelProduct<O> t{};
    t.m = block.size(), t.n = std::min(kWidth, round_up(z_.k - panel * kWidth, kLanes<float>));
    t.k = round_up(z_.c, Operand::adjacent);
    t.a_stride = depth_, t.along_k = true;
    t.b_step = kWidth;
    t.c_stride = kWidth;
    for (int point = 0; point < kPoints; ++point) {
      t.a = v + point * v_stride();
      t.b = u_ + panel * panel_size(z_.c) + point * Panels::stride(depth_);
      t.c = m + point * m_stride();
      multiply_panels(t);
    }
    write_out(block, panel, m);
  }

  void write_out(Range block, int64_t panel, const float* m) const {
    constexpr int lanes = kLanes<float>;
    using RowsOut = typename Rows::Output;
    using ColsOut = typename Cols::Output;
    for (int64_t tile = block.begin; tile < block.end; ++tile, m += kWidth) {
      const TileGrid::Place at = tiles_[tile];
      const int64_t rows = std::min<int64_t>(z_.ho - at.top, Rows::out),
                    cols = std::min<int64_t>(z_.wo - at.left, Cols::out);
      for (int64_t v = 0; v < kWidth / lanes; ++v) {
        const int64_t column = panel * kWidth + v * lanes, count = std::min<int64_t>(z_.k - column, lanes);
        if (count <= 0) continue;
        const int64_t first = ((at.image * z_.ho + at.top) * z_.wo + at.left) * z_.k + column;
        const auto read = [&](int i, int j) { return load(m + (i * Cols::in + j) * m_stride() + v * lanes); };
        const auto write = [&](int i, int j, Vec<float> sum, int64_t part) RT_INLINE_LAMBDA {
          const int64_t to = first + (i * z_.wo + j) * z_.k;
          Operand::store_result(y_ + to, finish_(sum, to, column, part), part);
        };
        if (rows == Rows::out && cols == Cols::out && count == lanes)
          transform_tile<RowsOut, ColsOut>(read, [&](int i, int j, Vec<float> sum) { write(i, j, sum, lanes); });
        else
          transform_tile<RowsOut, ColsOut>(read, [&](int i, int j, Vec<float> sum) {
            if (i < rows && j < cols) write(i, j, sum, count);
          });
      }
    }
  }

  Finish<T> finish_;
  const O* u_;
  const T* x_;
  T* y_;
  ConvSizes z_;
  int64_t pad_h_, pad_w_;
  TileGrid tiles_;
  int64_t depth_, panels_, block_;
};

}  // namespace

RT_ISA_END
