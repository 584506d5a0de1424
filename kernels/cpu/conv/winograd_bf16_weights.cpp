// Gradient of the weights of a Winograd convolution with bf16 operands: dU = sum over tiles of (A dy A^T) (B^T d B) for
// each of the 36 points of F(4x4, 3x3), dw = G^T dU G. The products add pairs of tiles, whose elements are adjacent.
#include <algorithm>

#include "kernels/cpu/conv/conv2d.h"
#include "kernels/cpu/conv/winograd_tiles.h"
#include "kernels/cpu/gemm/gemm_panels.h"
#include "kernels/cpu/vector/avx512_bf16.h"
#include "kernels/cpu/vector/isa.h"
#include "kernels/cpu/vector/partials.h"
#include "kernels/cpu/vector/scratch.h"

RT_ISA_BEGIN

namespace {

// Tiles of a block, whose V and G are transformed before the products. All tiles are one block if they are few: then
// dU of 64 x 64 channels, 590 KB, is complete at once, and needs no place in memory.
constexpr int64_t kPairedBlockTiles = 128, kMaxTilesAtOnce = 512;
// A small dw cannot occupy all threads. Then each range of tiles has its own dU on one thread, which gives its own dw,
// and these are added in order. The number of ranges depends only on the shape.
constexpr int64_t kOwnWeights = 8192, kOwnRangeTiles = 256, kMaxOwnRanges = 32;

class WinogradBf16Weights {
 public:
  WinogradBf16Weights(bf16* dw, const bf16* dy, const bf16* x, const ConvSizes& z, const Window& p,
                      const PixelNorm& of_x)
      : dw_(dw), dy_(dy), x_(x), norm_(of_x), z_(z), pad_h_(p.pad_h),
        pad_w_(p.pad_w), tiles_{z.n, z.ho, z.wo, F43::out, F43::out}, c_panels_(ceil_div(z.c, kWidth)),
        k_panels_(ceil_div(z.k, kWidth)) {
    const int64_t tiles = tiles_.count();
    ranges_ = z.c * z.k <= kOwnWeights ? std::clamp<int64_t>(tiles / kOwnRangeTiles, 1, kMaxOwnRanges) : 1;
    block_ = round_up(ranges_ == 1 && tiles <= kMaxTilesAtOnce ? tiles : kPairedBlockTiles, 2);
  }

  void run(Device device) const {
    if (tiles_.count() == 0) {  // there are no tiles that would initialise the sums
      std::fill_n(dw_, z_.k * kTaps * kTaps * z_.c, bf16(0.f));
      return;
    }
    const bool whole = block_ >= tiles_.count();  // each block of dU is complete at once
    const int64_t parts = parts_for(ranges_ > 1 ? ranges_ : blocks()), size = z_.k * kTaps * kTaps * z_.c;
    const int64_t operand_parts = ranges_ > 1 ? parts : 1, sum_parts = whole ? parts : operand_parts * blocks();
    const int64_t zeros = round_up(std::max(z_.c, z_.k), kLanes<float>),
                  each = (c_panels_ + k_panels_) * kPoints * stride();
    const Scratch<bf16> operands(zeros + operand_parts * each, device);
    const Scratch<float> sums(sum_parts * kBlockSize + (ranges_ > 1 ? ranges_ * size : 0), device);
    std::fill_n(operands.data(), zeros, bf16(0.f));
    const Images x{x_, z_.h, z_.w, z_.c, operands.data()};
    const Norm normalize = normalize_of<bf16>(x.h * x.w, x.c, norm_);
    bf16* v = operands.data() + zeros;
    float* partials = sums.data() + sum_parts * kBlockSize;
    if (ranges_ > 1) {
      parallel_parts(ranges_, [&](int64_t part, Range own) {
        float* u = sums.data() + part * blocks() * kBlockSize;
        for (int64_t q = own.begin; q < own.end; ++q) {
          accumulate(part_of(tiles_.count(), ranges_, q), x, normalize, v + part * each, u);
          transform_back(u, partials + q * size);
        }
      });
      add_partials(partials, ranges_, size, dw_);
    } else if (whole) {
      transform({0, tiles_.count()}, x, normalize, v);
      parallel_parts(blocks(), [&](int64_t part, Range own) {
        float* u = sums.data() + part * kBlockSize;
        for (int64_t b = own.begin; b < own.end; ++b) {
          for (int64_t point = 0; point < kPoints; ++point) multiply(tiles_.count(), b, point, true, v, u);
          transform_block_back(b, u, dw_);
        }
      });
    } else {
      accumulate({0, tiles_.count()}, x, normalize, v, sums.data());
      transform_back(sums.data(), dw_);
    }
  }

 private:
  using Images = TiledImages<bf16>;
  using Norm = std::optional<Normalize<bf16>>;
  static constexpr int kPoints = F43::in * F43::in;
  static constexpr int64_t kWidth = kTileCols<bf16>;
  static constexpr int64_t kPointSize = kWidth * kWidth, kBlockSize = kPoints * kPointSize;  // of dU

  // V is (panel, point, pair of tiles, channel of the panel, 2), and G follows. Strides between points are padded so
  // that the points do not share a few sets of the L1 cache. Block b of dU has panel b / c_panels_ of the outputs and
  // panel b % c_panels_ of the inputs.
  int64_t stride() const { return block_ * kWidth + 64; }
  int64_t blocks() const { return c_panels_ * k_panels_; }

  void accumulate(Range range, const Images& x, const Norm& normalize, bf16* v, float* u) const {
    for (int64_t t = range.begin; t < range.end; t += block_) {
      const Range block{t, std::min(t + block_, range.end)};
      transform(block, x, normalize, v);
      parallel_for(blocks() * kPoints, 1, [&](int64_t begin, int64_t end) {
        for (int64_t q = begin; q < end; ++q)
          multiply(block.size(), q / kPoints, q % kPoints, t == range.begin, v, u + q / kPoints * kBlockSize);
      });
    }
  }

  void transform(Range block, const Images& x, const Norm& normalize, bf16* v) const {
    const Images dy{dy_, z_.ho, z_.wo, z_.k, x.zeros};
    bf16* g = v + c_panels_ * kPoints * stride();
    parallel_for(ceil_div(block.size(), 2), 2, [&](int64_t begin, int64_t end) {
      ImageReader<bf16> read(x, normalize);
      const auto tile = [&](const TileGrid::Place& at) {
        const int64_t top = at.top - pad_h_;
        return TileElements<F43::in, F43::in, bf16>(x, read.image(at.image, top, top + F43::in), top, at.left - pad_w_);
      };
      for (int64_t pair = begin; pair < end; ++pair) {
        const int64_t t = block.begin + 2 * pair;
        const TileGrid::Place at = tiles_[t];
        // Beyond the last tile there is one without any elements.
        const TileGrid::Place next = t + 1 < block.end ? tiles_[t + 1] : TileGrid::Place{0, z_.h + kFar, z_.w + kFar};
        const auto of_x = tile(at), of_next = tile(next);
        transform_pair<F43::Input, F43::in>(of_x, of_next, v + 2 * pair * kWidth);
        transform_pair<F43::Gradient, F43::out>({dy, dy.image(at.image), at.top, at.left},
                                                {dy, dy.image(next.image), next.top, next.left}, g + 2 * pair * kWidth);
      }
    });
  }
  static constexpr int64_t kFar = 2 * F43::in;

  template <class Transform, int size>
  void transform_pair(const TileElements<size, size, bf16>& a, const TileElements<size, size, bf16>& b,
                      bf16* to) const {
    const int64_t step = stride();  // copied: stores could change members
    for (int64_t c = 0; c < a.channels; c += kLanes<float>) {
      bf16* out = to + c / kWidth * kPoints * step + 2 * (c % kWidth);
      Vec<float> first[kPoints];
      a.template transform<Transform, Transform>(c, [&](int point, Vec<float> f) { first[point] = f; });
      b.template transform<Transform, Transform>(
          c, [&](int point, Vec<float> f) { Avx512Bf16::store_pairs(out + point * step, first[point], f); });
    }
  }

  void multiply(int64_t count, int64_t block, int64_t point, bool first, const bf16* v, float* u) const {
    const int64_t kp = block / c_panels_, cp = block % c_panels_;
    PanelProduct<bf16> t{};
    t.m = std::min(z_.k - kp * kWidth, kWidth), t.k = round_up(count, 2);
    t.n = std::min(round_up(z_.c - cp * kWidth, kLanes<float>), kWidth);
    t.a = v + ((c_panels_ + kp) * kPoints + point) * stride(), t.a_stride = kWidth;
    t.b = v + (cp * kPoints + point) * stride(), t.b_step = kWidth;
    t.c = u + point * kPointSize, t.c_stride = t.add_stride = kWidth;
    t.add = first ? nullptr : t.c;
    multiply_panels(t);
  }

  template <class To> void transform_back(const float* u, To* dw) const {
    parallel_for(blocks(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) transform_block_back(b, u + b * kBlockSize, dw);
    });
  }

  template <class To> void transform_block_back(int64_t block, const float* u, To* dw) const {
    const int64_t k0 = block / c_panels_ * kWidth, c0 = block % c_panels_ * kWidth;
    for (int64_t k = k0; k < std::min(k0 + kWidth, z_.k); ++k)
      for (int64_t c = c0; c < std::min(c0 + kWidth, z_.c); c += kLanes<float>) {
        const float* from = u + (k - k0) * kWidth + c - c0;
        transform_tile<F43::WeightGradient, F43::WeightGradient>(
            [&](int i, int j) { return load(from + (i * F43::in + j) * kPointSize); },
            [&](int i, int j, Vec<float> y) {
              To* to = dw + ((k * kTaps + i) * kTaps + j) * z_.c + c;
              if constexpr (std::is_same_v<To, bf16>) store_rounded(to, y, z_.c - c);
              else store_converted(to, y, z_.c - c);
            });
      }
  }

  bf16* dw_;
  const bf16 *dy_, *x_;
  PixelNorm norm_;  // of x
  ConvSizes z_;
  int64_t pad_h_, pad_w_;
  TileGrid tiles_;
  int64_t c_panels_, k_panels_, ranges_, block_;
};

}  // namespace

void RT_UNIT::winograd_bf16_backward_weights(View dw, View dy, View x, Window p, PixelNorm of_x) {
  WinogradBf16Weights(dw.as<bf16>(), dy.as<bf16>(), x.as<bf16>(), ConvSizes(dy, x, dw), p, of_x).run(dw.device);
}

RT_ISA_END
