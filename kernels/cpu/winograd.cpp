// Winograd convolution: forward, and backward data as forward with rotated and transposed weights.
#include <algorithm>

#include "kernels/cpu/conv2d.h"
#include "kernels/cpu/gemm_panels.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/winograd_tiles.h"

RT_ISA_BEGIN

namespace {

// Tiles per block. V and M of 28 tiles stay in the L2 cache with 128 channels. With more channels the weights, which
// are read once per block, matter more. If there are few tiles or many weights, threads divide the panels instead of
// the blocks.
constexpr int64_t kBlockTiles = 28, kDeepBlockTiles = 56, kManyChannels = 192;
constexpr int64_t kFewTiles = 160, kManyWeights = 1 << 17, kSharedBlockTiles = 256;
// Depth of a product, for weights transformed beforehand and for weights transformed on the fly, which stay in the L2
// cache.
constexpr int64_t kProductDepth = 256, kOwnProductDepth = 128;

// out (n, out_h, out_w, columns) from in (n, h, w, depth); w is (K, 3, 3, C), with
// depth = K and columns = C if `turned`.
template <class T>
struct WinogradOperands {
  const T* in;
  int64_t n, h, w, depth;
  T* out;
  int64_t out_h, out_w, columns;
  const T* weights;
  bool turned;
  const T* bias;
  int64_t pad_h, pad_w;
};

// For each block of tiles: V = B^T d B for all channels. Then for each panel of output channels the 36 products M = V
// U, and the output. By block: each thread takes some of the blocks, and all weights are transformed beforehand. By
// panel: each thread takes some of the panels of every block, and transforms their weights when it needs them. U is
// four times as large as the weights, and with 512 channels it would have to come from memory.
template <class T>
class Winograd {
 public:
  explicit Winograd(const WinogradOperands<T>& o)
      : o_(o), tiles_{o.n, o.out_h, o.out_w}, depth_(round_up(o.depth, kLanes<float>)),
        panels_(ceil_div(o.columns, kWidth)) {
    by_panel_ = tiles_.count() <= kFewTiles || o.depth * o.columns >= kManyWeights;
    block_ = o.depth < kManyChannels ? kBlockTiles : kDeepBlockTiles;
    if (by_panel_) block_ = std::min(tiles_.count(), kSharedBlockTiles);
    block_depth_ = std::min(depth_, by_panel_ ? kOwnProductDepth : kProductDepth);
  }

  void run(Device device) const {
    if (tiles_.count() == 0) return;
    const int64_t blocks = ceil_div(tiles_.count(), block_), zeros = depth_,
                  weights = by_panel_ ? 0 : panels_ * panel_size();
    const int64_t v_each = kPoints * v_stride(),
                  m_each = kPoints * (m_stride() + (by_panel_ ? block_depth_ * kWidth : 0));
    const int64_t parts = parts_for(by_panel_ ? panels_ : blocks), v_parts = by_panel_ ? 1 : parts;
    const Scratch<float> scratch(zeros + weights + v_parts * v_each + parts * m_each, device);
    float *u = scratch.data() + zeros, *v = u + weights, *m = v + v_parts * v_each;
    std::fill_n(scratch.data(), zeros, 0.f);
    const TiledImages<T> in{o_.in, o_.h, o_.w, o_.depth, reinterpret_cast<const T*>(scratch.data())};
    const auto block = [&](int64_t b) { return Range{b * block_, std::min((b + 1) * block_, tiles_.count())}; };
    if (by_panel_) {
      for (int64_t b = 0; b < blocks; ++b) {
        transform_input(in, block(b), v);
        parallel_parts(panels_, [&](int64_t part, Range own) {
          for (int64_t q = own.begin; q < own.end; ++q) run_panel(block(b), q, v, nullptr, m + part * m_each);
        });
      }
    } else {
      transform_all_weights(u);
      parallel_parts(blocks, [&](int64_t part, Range own) {
        for (int64_t b = own.begin; b < own.end; ++b) {
          transform_input(in, block(b), v + part * v_each);
          for (int64_t q = 0; q < panels_; ++q) run_panel(block(b), q, v + part * v_each, u, m + part * m_each);
        }
      });
    }
  }

 private:
  static constexpr int64_t kWidth = kTileCols<float>, kPad = kLanes<float>;

  // Strides between points, padded so that the 36 points do not share a few sets of the L1 cache.
  int64_t v_stride() const { return block_ * depth_ + kPad; }
  int64_t m_stride() const { return block_ * kWidth + kPad; }
  int64_t panel_size() const { return kPoints * o_.depth * kWidth; }

  void transform_input(const TiledImages<T>& in, Range block, float* v) const {
    parallel_for(block.size(), 4, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const TileGrid::Place at = tiles_[block.begin + t];
        transform_tile<InputTransform>(in, at.image, at.top - o_.pad_h, at.left - o_.pad_w, v + t * depth_, v_stride(),
                                       {depth_, 0});
      }
    });
  }

  // (panel, point, d, j)
  void transform_all_weights(float* u) const {
    const int64_t chunks = ceil_div(o_.depth, kLanes<float>);
    parallel_for(panels_ * chunks, 8, [&](int64_t begin, int64_t end) {
      for (int64_t q = begin; q < end; ++q) {
        const int64_t d = q % chunks * kLanes<float>;
        float* to = u + q / chunks * panel_size() + d * kWidth;
        transform_weights(q / chunks, {d, std::min<int64_t>(d + kLanes<float>, o_.depth)}, to, o_.depth * kWidth);
      }
    });
  }

  // U of one panel and range of depths: writes point i of (d, j) to to[i * point_stride + (d - depths.begin) kWidth +
  // j].
  void transform_weights(int64_t panel, Range depths, float* to, int64_t point_stride) const {
    constexpr int lanes = kLanes<float>;
    for (int64_t v = 0; v < kTileVectors; ++v) {
      const int64_t column = panel * kWidth + v * lanes, count = std::min<int64_t>(o_.columns - column, lanes);
      for (int64_t d = depths.begin; d < depths.end && count > 0; d += lanes) {
        const int64_t steps = std::min<int64_t>(depths.end - d, lanes);
        Vec<float> w[kTaps * kTaps][lanes];
        load_weights(d, steps, column, count, w);
        for (int64_t l = 0; l < steps; ++l) {
          float* out = to + (d - depths.begin + l) * kWidth + v * lanes;
          transform_square<WeightTransform>(
              [&](int i, int j) { return w[i * kTaps + j][l]; },
              [&](int i, int j, Vec<float> x) { store(out + (i * kTileIn + j) * point_stride, x); });
        }
      }
    }
  }

  void load_weights(int64_t depth, int64_t steps, int64_t column, int64_t count, Vec<float> (*w)[kLanes<float>]) const {
    constexpr int lanes = kLanes<float>, taps = kTaps * kTaps;
    for (int tap = 0; tap < taps; ++tap)
      if (o_.turned) {
        for (int l = 0; l < steps; ++l)
          w[tap][l] = load_converted(o_.weights + ((depth + l) * taps + taps - 1 - tap) * o_.columns + column, count);
      } else {
        for (int l = 0; l < lanes; ++l)
          w[tap][l] = l < count ? load_converted(o_.weights + ((column + l) * taps + tap) * o_.depth + depth, steps)
                                : Vec<float>{};
        transpose<float>(w[tap]);
      }
  }

  void run_panel(Range block, int64_t panel, const float* v, const float* u, float* m) const {
    float* own_u = m + m_stride() * kPoints;
    PanelProduct<float> t{};
    t.m = block.size(), t.n = std::min(kWidth, round_up(o_.columns - panel * kWidth, kLanes<float>));
    t.a_stride = depth_, t.along_k = true;
    t.b_step = kWidth;
    t.add_stride = t.c_stride = kWidth;
    for (int64_t d = 0; d < o_.depth; d += block_depth_) {
      t.k = std::min(block_depth_, o_.depth - d);
      const float* weights = by_panel_ ? own_u : u + panel * panel_size() + d * kWidth;
      const int64_t u_stride = (by_panel_ ? block_depth_ : o_.depth) * kWidth;
      if (by_panel_) transform_weights(panel, {d, d + t.k}, own_u, u_stride);
      for (int point = 0; point < kPoints; ++point) {
        t.a = v + point * v_stride() + d;
        t.b = weights + point * u_stride;
        t.c = m + point * m_stride();
        t.add = d ? t.c : nullptr;
        multiply_panels(t);
      }
    }
    write_out(block, panel, m);
  }

  void write_out(Range block, int64_t panel, const float* m) const {
    constexpr int lanes = kLanes<float>;
    for (int64_t tile = block.begin; tile < block.end; ++tile, m += kWidth) {
      const TileGrid::Place at = tiles_[tile];
      const int64_t rows = std::min<int64_t>(o_.out_h - at.top, kTileOut),
                    cols = std::min<int64_t>(o_.out_w - at.left, kTileOut);
      for (int64_t v = 0; v < kTileVectors; ++v) {
        const int64_t column = panel * kWidth + v * lanes, count = std::min<int64_t>(o_.columns - column, lanes);
        if (count <= 0) continue;
        T* out = o_.out + ((at.image * o_.out_h + at.top) * o_.out_w + at.left) * o_.columns + column;
        const Vec<float> bias = o_.bias ? load_converted(o_.bias + column, count) : Vec<float>{};
        const auto read = [&](int i, int j) { return load(m + (i * kTileIn + j) * m_stride() + v * lanes); };
        const auto to = [&](int i, int j) { return out + (i * o_.out_w + j) * o_.columns; };
        if (rows == kTileOut && cols == kTileOut && count == lanes)
          transform_square<OutputTransform>(
              read, [&](int i, int j, Vec<float> y) { store_converted(to(i, j), y + bias, lanes); });
        else
          transform_square<OutputTransform>(read, [&](int i, int j, Vec<float> y) {
            if (i < rows && j < cols) store_converted(to(i, j), y + bias, count);
          });
      }
    }
  }

  WinogradOperands<T> o_;
  TileGrid tiles_;
  int64_t depth_, panels_, block_, block_depth_;
  bool by_panel_;
};

// Not for f64.
template <class F>
void dispatch_winograd(DType dtype, F&& f) {
  dispatch_float(dtype, [&]<class T>() {
    if constexpr (!std::is_same_v<T, double>) f.template operator()<T>();
  });
}

}  // namespace

void winograd_forward(View y, View x, View w, View b, Window p) {
  const ConvSizes z(y, x, w);
  dispatch_winograd(y.dtype, [&]<class T>() {
    const WinogradOperands<T> o{.in = x.as<T>(),
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
                                .pad_w = p.pad_w};
    Winograd<T>(o).run(y.device);
  });
}

void winograd_backward_data(View dx, View dy, View w, Window p) {
  const ConvSizes z(dy, dx, w);
  dispatch_winograd(dx.dtype, [&]<class T>() {
    const WinogradOperands<T> o{.in = dy.as<T>(),
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
    Winograd<T>(o).run(dx.device);
  });
}

RT_ISA_END
