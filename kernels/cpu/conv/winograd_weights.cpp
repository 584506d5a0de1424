// Gradient of the weights of a Winograd convolution: dU = sum over tiles of (A dy A^T) (B^T d B) for each of the 36
// points, dw = G^T dU G.
#include <algorithm>

#include "kernels/cpu/conv/conv2d.h"
#include "kernels/cpu/conv/winograd_tiles.h"
#include "kernels/cpu/gemm/gemm_panels.h"
#include "kernels/cpu/vector/isa.h"
#include "kernels/cpu/vector/partials.h"
#include "kernels/cpu/vector/scratch.h"

RT_ISA_BEGIN

namespace {

// dU of 64 x 64 channels for all points is 590 KB, and stays in the L2 cache together with the 48 tiles of a block. For
// a larger dU blocks are larger, so that dU is read and written less often.
constexpr int64_t kSmallWeights = 8192, kSmallBlockTiles = 48, kGradientBlockTiles = 128, kRangeTiles = 256,
                  kMaxRanges = 32;
// If all tiles are one block, the rows of a large dU that are in memory at once: 9 MB with 512 channels.
constexpr int64_t kRowsAtOnce = 128;

// Small dU: each range of tiles has its own dU on one thread, which gives its own dw, and these are added in order.
// Large dU: all threads share it, and divide first the tiles to transform and then the points to multiply. This choice
// and the number of ranges depend only on the shape.
template <class T> class WinogradWeights {
 public:
  WinogradWeights(T* dw, const T* dy, const T* x, const ConvSizes& z, const Window& p, const PixelNorm& of_x)
      : dw_(dw), dy_(dy), x_(x), norm_(of_x), z_(z), pad_h_(p.pad_h),
        pad_w_(p.pad_w), tiles_{z.n, z.ho, z.wo, F43::out, F43::out}, c_(round_up(z.c, kLanes<float>)) {
    const bool small = c_ * z.k <= kSmallWeights;
    ranges_ = small ? std::clamp<int64_t>(tiles_.count() / kRangeTiles, 1, kMaxRanges) : 1;
    block_ = std::min(tiles_.count(), small ? kSmallBlockTiles : kGradientBlockTiles);
    rows_ = block_ == tiles_.count() ? std::min(z.k, kRowsAtOnce) : z.k;
    partial_ = ranges_ > 1 || !std::is_same_v<T, float>;
  }

  void run(Device device) const {
    if (tiles_.count() == 0) {  // there are no tiles that would initialise the sums
      std::fill_n(dw_, z_.k * kTaps * kTaps * z_.c, T(0.f));
      return;
    }
    const int64_t parts = parts_for(ranges_), size = z_.k * kTaps * kTaps * z_.c,
                  partials = partial_ ? ranges_ * size : 0;
    const int64_t zeros = round_up(std::max(z_.c, z_.k), kLanes<float>),
                  each = kPoints * (v_stride() + g_stride() + u_stride());
    const Scratch<float> scratch(zeros + parts * each + partials, device);
    float *buffers = scratch.data() + zeros, *sums = buffers + parts * each;
    std::fill_n(scratch.data(), zeros, 0.f);
    const TiledImages<T> x{x_, z_.h, z_.w, z_.c, reinterpret_cast<const T*>(scratch.data())};
    const std::optional<Normalize<T>> normalize = normalize_of<T>(x.h * x.w, x.c, norm_);
    parallel_parts(ranges_, [&](int64_t part, Range own) {
      float *v = buffers + part * each, *g = v + kPoints * v_stride(), *u = g + kPoints * g_stride();
      for (int64_t q = own.begin; q < own.end; ++q) {
        const Range tiles = part_of(tiles_.count(), ranges_, q);
        if (partial_) accumulate(tiles, x, normalize, v, g, u, sums + q * size);
        else if constexpr (std::is_same_v<T, float>) accumulate(tiles, x, normalize, v, g, u, dw_);
      }
    });
    if (partial_) add_partials(sums, ranges_, size, dw_);
  }

 private:
  static constexpr int kPoints = F43::in * F43::in;
  static constexpr int64_t kWidth = kTileCols<float>, kPad = kLanes<float>;

  // Panels of kWidth channels. Strides between points are padded so that the 36 points do not share a few sets of the
  // L1 cache.
  int64_t v_stride() const { return block_ * round_up(z_.c, kWidth) + kPad; }
  int64_t g_stride() const { return block_ * round_up(z_.k, kWidth) + kPad; }
  int64_t u_stride() const { return rows_ * c_ + kPad; }

  void accumulate(Range range, const TiledImages<T>& x, const std::optional<Normalize<T>>& normalize, float* v,
                  float* g, float* u, float* dw) const {
    for (int64_t b = range.begin; b < range.end; b += block_) {
      const Range block{b, std::min(b + block_, range.end)};
      transform_tiles(block, x, normalize, v, g);
      for (Range k{0, rows_}; k.begin < z_.k; k = {k.end, k.end + rows_}) {
        k.end = std::min(k.end, z_.k);
        multiply(block.size(), k, b == range.begin, v, g, u);
        if (block.end == range.end) transform_back(k, u, dw);
      }
    }
  }

  void transform_tiles(Range block, const TiledImages<T>& x, const std::optional<Normalize<T>>& normalize, float* v,
                       float* g) const {
    const TiledImages<T> dy{dy_, z_.ho, z_.wo, z_.k, x.zeros};
    parallel_for(block.size(), 4, [&](int64_t begin, int64_t end) {
      ImageReader<T> read(x, normalize);
      for (int64_t t = begin; t < end; ++t) {
        const TileGrid::Place at = tiles_[block.begin + t];
        const int64_t top = at.top - pad_h_;
        const PanelLayout layout{kWidth, block_ * kWidth};
        const TileElements<F43::in, F43::in, T> of_x(x, read.image(at.image, top, top + F43::in), top,
                                                     at.left - pad_w_);
        const TileElements<F43::out, F43::out, T> of_dy(dy, dy.image(at.image), at.top, at.left);
        transform<F43::Input>(of_x, v + t * kWidth, v_stride(), layout);
        transform<F43::Gradient>(of_dy, g + t * kWidth, g_stride(), layout);
      }
    });
  }

  // Writes each point of channel c to to[point * point_stride + layout(c)].
  template <class Transform, class Tile>
  static void transform(const Tile& tile, float* to, int64_t point_stride, PanelLayout layout) {
    for (int64_t c = 0; c < tile.channels; c += kLanes<float>) {
      float* out = to + layout(c);
      tile.template transform<Transform, Transform>(
          c, [&](int point, Vec<float> x) { store(out + point * point_stride, x); });
    }
  }

  // Rows k of dU, which begin at u.
  void multiply(int64_t count, Range k, bool first, const float* v, const float* g, float* u) const {
    const int64_t panels = ceil_div(k.size(), kWidth);
    parallel_for(kPoints * panels, 1, [&](int64_t begin, int64_t end) {
      for (int64_t q = begin; q < end; ++q) {
        const int64_t point = q / panels, row = q % panels * kWidth;
        PanelProduct<float> t{};
        t.m = std::min(k.size() - row, kWidth), t.n = c_, t.k = count;
        t.a = g + point * g_stride() + (k.begin + row) * block_, t.a_stride = kWidth;
        t.b = v + point * v_stride(), t.panel_stride = block_ * kWidth, t.b_step = kWidth;
        t.c = u + point * u_stride() + row * c_;
        t.add = first ? nullptr : t.c;
        t.c_stride = t.add_stride = c_;
        multiply_panels(t);
      }
    });
  }

  void transform_back(Range rows, const float* u, float* dw) const {
    constexpr int lanes = kLanes<float>;
    parallel_for(rows.size(), 4, [&](int64_t begin, int64_t end) {
      const int64_t channels = z_.c, stride = u_stride();  // copied: stores could change members
      for (int64_t k = begin; k < end; ++k)
        for (int64_t c = 0; c < channels; c += lanes)
          transform_tile<F43::WeightGradient, F43::WeightGradient>(
              [&](int i, int j) { return load(u + (i * F43::in + j) * stride + k * c_ + c); },
              [&](int i, int j, Vec<float> y) {
                store_converted(dw + (((rows.begin + k) * kTaps + i) * kTaps + j) * channels + c, y, channels - c);
              });
    });
  }

  T* dw_;
  const T *dy_, *x_;
  PixelNorm norm_;  // of x
  ConvSizes z_;
  int64_t pad_h_, pad_w_;
  TileGrid tiles_;
  int64_t c_, ranges_, block_, rows_;
  bool partial_;
};

}  // namespace

void winograd_backward_weights(View dw, View dy, View x, Window p, PixelNorm of_x) {
  const ConvSizes z(dy, x, dw);
  dispatch_float(dw.dtype, [&]<class T>() {
    if constexpr (!std::is_same_v<T, double>)
      WinogradWeights<T>(dw.as<T>(), dy.as<T>(), x.as<T>(), z, p, of_x).run(dw.device);
  });
}

RT_ISA_END
