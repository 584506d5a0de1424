#pragma once
#include <array>

#include "kernels/cpu/conv/amx_tiles.h"

// Sums of convolutions in tiles of AMX: up to four outputs of 16 images by 32 columns at a time, in two halves.
RT_ISA_BEGIN

namespace {

inline constexpr int64_t kMaxOutputs = 4, kHalf = kAmxRows * kAmxPairs, kOutput = 2 * kHalf;  // f32 of an output

// Where 16 images' outputs of 32 columns go: strides in elements.
struct SumOutput {
  const float* bias = nullptr;
  int64_t images = 0, pixel_stride = 0, columns = 0;
  bool stream = false;  // past the caches
};
// Of 16 images, in elements; negative: the image has no such outputs.
using ImageOffsets = std::array<int64_t, kAmxRows>;

// Sums that a step left in memory, [output][half][image][16]. They are written out between the products of the next
// step, so that vector and matrix unit work side by side.
struct PendingSums {
  const float* sums = nullptr;
  bf16* to = nullptr;  // the first output of an image at offset 0
  const int64_t* offsets = nullptr;
  int64_t outputs = 1, row = 0, rows = 0;

  void begin(const float* from, bf16* first, const ImageOffsets& images, int64_t count, const SumOutput& out) {
    sums = from, to = first, offsets = images.data(), outputs = count, row = 0, rows = count * out.images;
  }
  RT_INLINE void write(const SumOutput& out, int64_t count) {
    for (const int64_t end = std::min(row + count, rows); row < end; ++row) {
      const int64_t image = row / outputs, output = row % outputs;
      const float* from = sums + output * kOutput + image * kAmxPairs;
      if (offsets[image] < 0) continue;
      Amx::round(from, from + kHalf, out.bias, to + offsets[image] + output * out.pixel_stride, out.columns,
                 out.stream);
    }
  }
};

// The input of a few rows of outputs: row r of 16 images begins at rows[r], or is null outside the images; its pixels
// are `blocks` tiles each.
struct SumInput {
  const bf16* const* rows;
  int64_t row_taps, blocks, pixels;
};

// Windows of three taps side by side and stride 1: `count` neighbouring outputs by 16 columns. The three tiles of
// weights of a row of the window stay in registers while the pixels pass by: each is loaded once and meets up to three
// sums: 9 loads for 12 products, where two pixels by 32 columns need 12.
// left, right: whether the image goes on beyond the outputs. weights: [row tap][block][3] tiles.
template <int count, bool left, bool right>
RT_INLINE void strip_step(Amx& unit, const bf16* x, int64_t pixel, const bf16* weights) {
  unit.load<4>(weights, 64);
  unit.load<5>(weights + kAmxTile, 64);
  unit.load<6>(weights + 2 * kAmxTile, 64);
  if constexpr (left) unit.load<7>(x - pixel, 64), unit.product<0, 7, 4>();
  const auto inner = [&]<int i>() {
    if constexpr (i < count) {
      unit.load<7>(x + i * pixel, 64);
      if constexpr (i + 1 < count) unit.product<i + 1, 7, 4>();
      unit.product<i, 7, 5>();
      if constexpr (i > 0) unit.product<i - 1, 7, 6>();
    }
  };
  inner.template operator()<0>();
  inner.template operator()<1>();
  inner.template operator()<2>();
  inner.template operator()<3>();
  if constexpr (right) unit.load<7>(x + count * pixel, 64), unit.product<count - 1, 7, 6>();
}

// `first`: the pixel under the middle tap of the first output. weights: [half][row tap][block][3] tiles.
template <int count, bool left, bool right>
void strip_sums(Amx& unit, const SumInput& x, int64_t first, const SumOutput& out, const bf16* weights, float* sums,
                PendingSums& pending) {
  const int64_t halves = out.columns > kAmxPairs ? 2 : 1;
  const int64_t few = ceil_div(kMaxOutputs * kAmxRows, halves * x.row_taps * x.blocks);
  for (int64_t half = 0; half < halves; ++half, sums += kHalf) {
    unit.zero<0>(), unit.zero<1>(), unit.zero<2>(), unit.zero<3>();
    for (int64_t t = 0; t < x.row_taps; ++t, weights += x.blocks * 3 * kAmxTile) {
      if (!x.rows[t]) continue;
      const bf16* from = x.rows[t] + first * x.blocks * kAmxTile;
      for (int64_t d = 0; d < x.blocks; ++d) {
        strip_step<count, left, right>(unit, from + d * kAmxTile, x.blocks * kAmxTile, weights + d * 3 * kAmxTile);
        pending.write(out, few);
      }
    }
    if (half + 1 == halves) pending.write(out, pending.rows);
    unit.store<0>(sums, 64);
    if constexpr (count > 1) unit.store<1>(sums + kOutput, 64);
    if constexpr (count > 2) unit.store<2>(sums + 2 * kOutput, 64);
    if constexpr (count > 3) unit.store<3>(sums + 3 * kOutput, 64);
  }
}

using StripSums = void (*)(Amx&, const SumInput&, int64_t, const SumOutput&, const bf16*, float*, PendingSums&);
inline constexpr StripSums kStripSums[4][2][2] = {{{strip_sums<1, false, false>, strip_sums<1, false, true>},
                                                   {strip_sums<1, true, false>, strip_sums<1, true, true>}},
                                                  {{strip_sums<2, false, false>, strip_sums<2, false, true>},
                                                   {strip_sums<2, true, false>, strip_sums<2, true, true>}},
                                                  {{strip_sums<3, false, false>, strip_sums<3, false, true>},
                                                   {strip_sums<3, true, false>, strip_sums<3, true, true>}},
                                                  {{strip_sums<4, false, false>, strip_sums<4, false, true>},
                                                   {strip_sums<4, true, false>, strip_sums<4, true, true>}}};

// Any window and stride: two neighbouring outputs, or one, by 32 columns. first: the pixel under the first tap of the
// first output. weights: [tap][block][half] tiles.
void pair_sums(Amx& unit, const SumInput& x, const Axis& cols, int64_t first, bool both, const SumOutput& out,
               const bf16* weights, float* sums, PendingSums& pending) {
  unit.zero<0>(), unit.zero<1>(), unit.zero<2>(), unit.zero<3>();
  const int64_t few = ceil_div(2 * kAmxRows, std::max<int64_t>(x.row_taps * cols.taps * x.blocks, 1));
  const int64_t size = x.blocks * kAmxTile;
  for (int64_t t = 0; t < x.row_taps; ++t)
    for (int64_t u = 0; u < cols.taps && x.rows[t]; ++u) {
      const int64_t pixel = first + u * cols.tap_step, next = pixel + cols.in_step;
      const bool a = pixel >= 0 && pixel < x.pixels, b = both && next >= 0 && next < x.pixels;
      const bf16* from = x.rows[t] + pixel * size;
      const bf16* other = x.rows[t] + next * size;
      const bf16* w = weights + (t * cols.taps + u) * 2 * size;
      if (!a && !b) continue;
      for (int64_t d = 0; d < x.blocks; ++d, from += kAmxTile, other += kAmxTile, w += 2 * kAmxTile) {
        unit.load<6>(w, 64), unit.load<7>(w + kAmxTile, 64);
        if (a) unit.load<4>(from, 64), unit.product<0, 4, 6>(), unit.product<1, 4, 7>();
        if (b) unit.load<5>(other, 64), unit.product<2, 5, 6>(), unit.product<3, 5, 7>();
        pending.write(out, few);
      }
    }
  pending.write(out, pending.rows);
  unit.store<0>(sums, 64), unit.store<1>(sums + kHalf, 64);
  unit.store<2>(sums + kOutput, 64), unit.store<3>(sums + kOutput + kHalf, 64);
}

}  // namespace

RT_ISA_END
