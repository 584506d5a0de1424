#pragma once
#include <algorithm>

#include "core/parallel.h"
#include "kernels/cpu/conv/winograd_transform.h"
#include "kernels/cpu/gemm/gemm_tile.h"
#include "kernels/cpu/vector/range.h"

RT_ISA_BEGIN

namespace {

// U = G w G^T of w (K, 3, 3, C) in panels of kTileCols output channels, as multiply_panels reads them; depth = C and
// columns = K, or turned and the other way round. Operand is what the products multiply, Rows and Cols are F43 or F23.
template <class T, class Operand, class Rows, class Cols> class WinogradPanels {
 public:
  using O = typename Operand::Type;
  static constexpr int kPoints = Rows::in * Cols::in;
  static constexpr int64_t kWidth = kTileCols<O>, kPad = 64 / int64_t(sizeof(O));

  WinogradPanels(const T* weights, int64_t depth, int64_t columns, bool turned)
      : weights_(weights), depth_(depth), columns_(columns), turned_(turned) {}

  int64_t count() const { return ceil_div(columns_, kWidth); }
  // Between points of so many elements of the depth, padded so that they do not share a few sets of the L1 cache.
  static int64_t stride(int64_t depth) { return depth * kWidth + kPad; }

  // All panels: (panel, point, d, j).
  void transform_all(O* u) const {
    const int64_t chunks = ceil_div(depth_, kLanes<float>), point = stride(round_up(depth_, kLanes<float>));
    parallel_for(count() * chunks, 8, [&](int64_t begin, int64_t end) {
      for (int64_t q = begin; q < end; ++q) {
        const int64_t d = q % chunks * kLanes<float>;
        transform(q / chunks, {d, std::min<int64_t>(d + kLanes<float>, depth_)},
                  u + q / chunks * kPoints * point + d * kWidth, point);
      }
    });
  }

  // U of one panel and range of depths: writes a point of (d, j) to to[point stride + (d - depths.begin) kWidth + j],
  // or the pairs of two d there.
  void transform(int64_t panel, Range depths, O* to, int64_t stride) const {
    constexpr int lanes = kLanes<float>;
    for (int64_t v = 0; v < kWidth / lanes; ++v) {
      const int64_t column = panel * kWidth + v * lanes, count = std::min<int64_t>(columns_ - column, lanes);
      for (int64_t d = depths.begin; d < depths.end && count > 0; d += lanes) {
        const int64_t steps = std::min<int64_t>(depths.end - d, lanes);
        Vec<float> w[kTaps * kTaps][lanes];
        load_weights(d, steps, column, count, w);
        for (int64_t l = 0; l < steps; l += Operand::adjacent)
          Operand::template store_weights<kPoints>(
              to + (d - depths.begin + l) * kWidth + v * lanes * Operand::adjacent, stride,
              [&](int second, const auto& write) {
                transform_tile<typename Rows::Weight, typename Cols::Weight>(
                    [&](int i, int j) { return w[i * kTaps + j][l + second]; },
                    [&](int i, int j, Vec<float> x) { write(i * Cols::in + j, x); });
              });
      }
    }
  }

 private:
  // Those beyond `steps` are zeros.
  void load_weights(int64_t depth, int64_t steps, int64_t column, int64_t count, Vec<float> (*w)[kLanes<float>]) const {
    constexpr int lanes = kLanes<float>, taps = kTaps * kTaps;
    for (int tap = 0; tap < taps; ++tap)
      if (turned_) {
        for (int l = 0; l < lanes; ++l) {
          const T* from = weights_ + ((depth + l) * taps + taps - 1 - tap) * columns_ + column;
          w[tap][l] = l < steps ? load_converted(from, count) : Vec<float>{};
        }
      } else {
        for (int l = 0; l < lanes; ++l) {
          const T* from = weights_ + ((column + l) * taps + tap) * depth_ + depth;
          w[tap][l] = l < count ? load_converted(from, steps) : Vec<float>{};
        }
        transpose<float>(w[tap]);
      }
  }

  const T* weights_;
  int64_t depth_, columns_;
  bool turned_;
};

// What the products multiply.
struct F32Operand {
  using Type = float;
  static constexpr int adjacent = 1;
  // Depth of a product, for weights transformed beforehand and for weights transformed on the fly, which stay in the L2
  // cache.
  static constexpr int64_t product_depth = 256, own_product_depth = 128;
  // Tiles of 4x4 outputs per block, or as many outputs in smaller ones. V and M of 28 stay in the L2 cache with 128
  // channels. With more channels the weights, which are read once per block, matter more.
  static int64_t block_tiles(int64_t depth) { return depth < 192 ? 28 : 56; }

  RT_INLINE static void store(float* p, Vec<float> x) { ringtape::cpu::RT_ISA::store(p, x); }
  template <class T> RT_INLINE static void store_result(T* p, Vec<float> x, int64_t count) {
    store_converted(p, x, count);
  }
  // transform(0, write) gives the points of one element of the depth, which are `stride` apart.
  template <int points, class F> RT_INLINE static void store_weights(float* to, int64_t stride, const F& transform) {
    transform(0, [&](int point, Vec<float> x) { store(to + point * stride, x); });
  }
};

}  // namespace

RT_ISA_END
