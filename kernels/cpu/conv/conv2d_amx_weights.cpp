// Gradient of the weights by AMX. A product sums over 32 images: the pairs that it adds are image i of a block of 16
// and image i of the next. So dy needs two permutations a row to be the right operand, and x also a transposition to be
// the left one; each pixel once, for all taps and channels of the other side.
#include <algorithm>

#include "kernels/cpu/conv/amx_tiles.h"
#include "kernels/cpu/conv/conv2d.h"
#include "kernels/cpu/vector/isa.h"
#include "kernels/cpu/vector/scratch.h"

RT_ISA_BEGIN

namespace {

constexpr int64_t kImagePairs = 2 * kAmxRows;            // images of a product
constexpr int64_t kOperands = 3 << 18;                   // elements of transformed x and dy: what the L2 cache holds
constexpr int64_t kMaxChannels = 256, kMaxInputs = 128;  // that are transformed together
constexpr int64_t kSums = kAmxRows * kAmxPairs;          // of a tile
constexpr int64_t kLargeGradient = 1 << 18;              // f32 that no cache keeps for the optimizer
// Small sums: each range of images and rows has its own, and these are added in order.
constexpr int64_t kSmallSums = 1 << 18, kSumRanges = 8;

// Rows of two blocks of images, `stride` elements apart, as pairs: of the lower and of the upper 16 channels.
struct TilePair {
  const bf16 *first, *second;
  int64_t stride;
};
RT_INLINE void pair_images(const TilePair& x, bf16* low, bf16* high) {
  for (int64_t i = 0; i < kAmxRows; ++i) {
    const Row a = load_row(x.first + i * x.stride), b = load_row(x.second + i * x.stride);
    store_row(low + i * kAmxDepth, interleaved_low(a, b));
    store_row(high + i * kAmxDepth, interleaved_high(a, b));
  }
}
RT_INLINE void pair_images_transposed(const TilePair& x, bf16* low, bf16* high) {
  Row l[kAmxRows], h[kAmxRows];
  for (int64_t i = 0; i < kAmxRows; ++i) {
    const Row a = load_row(x.first + i * x.stride), b = load_row(x.second + i * x.stride);
    l[i] = interleaved_low(a, b), h[i] = interleaved_high(a, b);
  }
  transpose_tile(l), transpose_tile(h);
  for (int64_t i = 0; i < kAmxRows; ++i) store_row(low + i * kAmxDepth, l[i]), store_row(high + i * kAmxDepth, h[i]);
}

// A row of outputs of stride 1 under windows of three taps, padded by one: the sums of the three taps, of twice 16
// channels of x by 16 of dy, stay in tiles 0 to 5 along the row. Of seven loads for six products four find x in the L1
// cache, where the pixel before brought it.
template <bool left, bool right> RT_INLINE void pixel_step(Amx& unit, const bf16* x, const bf16* more, const bf16* dy) {
  unit.load<6>(dy, 64);
  if constexpr (left) unit.load<7>(x - kAmxTile, 64), unit.product<0, 7, 6>();
  unit.load<7>(x, 64), unit.product<1, 7, 6>();
  if constexpr (right) unit.load<7>(x + kAmxTile, 64), unit.product<2, 7, 6>();
  if constexpr (left) unit.load<7>(more - kAmxTile, 64), unit.product<3, 7, 6>();
  unit.load<7>(more, 64), unit.product<4, 7, 6>();
  if constexpr (right) unit.load<7>(more + kAmxTile, 64), unit.product<5, 7, 6>();
}
RT_INLINE void pixel_row(Amx& unit, const bf16* x, const bf16* more, const bf16* dy, int64_t w) {
  if (w == 1) return pixel_step<false, false>(unit, x, more, dy);
  pixel_step<false, true>(unit, x, more, dy);
  for (int64_t j = 1; j + 1 < w; ++j)
    pixel_step<true, true>(unit, x + j * kAmxTile, more + j * kAmxTile, dy + j * kAmxTile);
  const int64_t last = (w - 1) * kAmxTile;
  pixel_step<true, false>(unit, x + last, more + last, dy + last);
}

// Tile t of sums is tile t of the unit, for t < count.
template <int count> RT_INLINE void load_sums(Amx& unit, float* const* at, bool zeros) {
  const auto one = [&]<int t>() {
    if constexpr (t < count) zeros ? unit.zero<t>() : unit.load<t>(at[t], 64);
  };
  one.template operator()<0>(), one.template operator()<1>(), one.template operator()<2>();
  one.template operator()<3>(), one.template operator()<4>(), one.template operator()<5>();
}
template <int count> RT_INLINE void store_sums(Amx& unit, float* const* at) {
  const auto one = [&]<int t>() {
    if constexpr (t < count) unit.store<t>(at[t], 64);
  };
  one.template operator()<0>(), one.template operator()<1>(), one.template operator()<2>();
  one.template operator()<3>(), one.template operator()<4>(), one.template operator()<5>();
}

// One group. dw (k, taps, depth) is bf16 or f32.
class AmxWeights {
 public:
  AmxWeights(const View& dw, const bf16* dy, const bf16* x, const ConvSizes& z, const Axes& axes, const PixelNorm& of_x)
      : dw_(dw), z_(z), norm_(normalize_of<bf16>(z.h * z.w, z.c, of_x)), folded_(z.cg == z.c && folds(z.cg, axes)),
        axes_(axes), sums_axes_{folded_ ? folded_axis(axes.rows) : axes.rows,
                                folded_ ? folded_axis(axes.cols) : axes.cols},
        parts_(amx_parts(z.n, sums_axes_.rows, kImagePairs)),
        x_{x,
           z.n,
           z.h,
           z.w,
           z.c,
           z.cg,
           folded_ ? &axes_ : nullptr,
           input_parts(parts_, sums_axes_.rows, folded_ ? z.ho : z.h)},
        dy_{dy, z.n, z.ho, z.wo, z.k, z.kg, nullptr, parts_}, taps_(sums_axes_.rows.taps * sums_axes_.cols.taps),
        c_blocks_(x_.blocks()), k_blocks_(dy_.blocks()), image_pairs_(ceil_div(dy_.count(), kImagePairs)) {
    if (norm_) x_.norm = &*norm_;
    const Axis& cols = sums_axes_.cols;
    strips_ = cols.taps == 3 && cols.in_step == 1 && cols.tap_step == 1 && cols.in_first == -1 && z.wo == z.w;
    // Together: rows of an image, or several images. The choice depends only on the shape.
    c_cut_ = std::min(c_blocks_, kMaxInputs / kAmxDepth), k_cut_ = std::min(k_blocks_, kMaxChannels / kAmxDepth);
    const auto size = [&](int64_t rows) {
      return 2 * kAmxTile * (c_cut_ * input_rows({0, rows}) * x_.pixels() + k_cut_ * rows * z_.wo);
    };
    groups_ = 1;
    while (groups_ < parts_.rows && size(ceil_div(parts_.rows, groups_)) > kOperands) ++groups_;
    together_ = groups_ > 1 ? 1 : std::clamp<int64_t>(kOperands / size(parts_.rows), 1, image_pairs_);
    ranges_ = sums_size() <= kSmallSums ? std::min(kSumRanges, steps()) : 1;
    in_tiles_ = steps() == 1;
  }

  void run(Device device) const {
    // Each item: the steps of one range for some of the channels of x. How these are divided changes no sum.
    const int64_t cuts = std::clamp<int64_t>(ceil_div(threads(), ranges_), ceil_div(c_blocks_, c_cut_), c_blocks_);
    const int64_t items = ranges_ * cuts, c_most = ceil_div(c_blocks_, cuts);
    int64_t x_rows = 0, rows = 0;
    for (int64_t g = 0; g < groups_; ++g)
      x_rows = std::max(x_rows, input_rows(part_of(parts_.rows, groups_, g))),
      rows = std::max(rows, part_of(parts_.rows, groups_, g).size());
    const int64_t x_size = 2 * c_most * together_ * x_rows * x_.pixels() * kAmxTile,
                  dy_size = 2 * k_cut_ * together_ * rows * z_.wo * kAmxTile,
                  copied = 2 * std::max(c_most * x_rows * x_.pixels(), k_cut_ * rows * z_.wo) * kAmxTile;
    const int64_t each = x_size + dy_size + copied;
    const Scratch<float> sums(in_tiles_ ? 0 : ranges_ * sums_size(), device);
    const Scratch<bf16> scratch(parts_for(items) * each, device);
    parallel_items(items, [&](int64_t part, const auto& next) {
      Amx unit;
      bf16 *xs = scratch.data() + part * each, *ds = xs + x_size;
      for (int64_t q = next(); q < items; q = next())
        accumulate(unit, part_of(steps(), ranges_, q / cuts), part_of(c_blocks_, cuts, q % cuts), xs, ds, ds + dy_size,
                   sums.data() + q / cuts * sums_size());
    });
    if (!in_tiles_) write_out(sums.data());
  }

 private:
  // Tiles of sums [c / 16][k / 16][tap].
  int64_t sums_size() const { return 2 * c_blocks_ * 2 * k_blocks_ * taps_ * kSums; }
  float* tile(float* sums, int64_t p, int64_t q, int64_t tap) const {
    return sums + ((p * 2 * k_blocks_ + q) * taps_ + tap) * kSums;
  }
  // A step: a group of rows of `together_` pairs of blocks of images.
  int64_t steps() const { return ceil_div(image_pairs_, together_) * groups_; }

  // Rows of x that a range of rows of dy needs.
  Range needed_rows(Range rows) const {
    const Axis& a = sums_axes_.rows;
    return x_.existing(
        {a.in_first + rows.begin * a.in_step, a.in_first + (rows.end - 1) * a.in_step + (a.taps - 1) * a.tap_step + 1});
  }
  int64_t input_rows(Range rows) const { return needed_rows(rows).size(); }

  // Operands of a step, as pairs of images: [channels / 16][pair of blocks][row][pixel] tiles.
  struct Operand {
    bf16* tiles;
    Range rows;
    int64_t pixels, pairs;
    int64_t stride() const { return pairs * rows.size() * pixels * kAmxTile; }
    bf16* row(int64_t channels, int64_t pair, int64_t r) const {
      return tiles + channels * stride() + (pair * rows.size() + r - rows.begin) * pixels * kAmxTile;
    }
  };

  template <bool transposed>
  void transform(const AmxImages& from, Range pairs, Range blocks, const Operand& to, bf16* copy) const {
    for (int64_t m = pairs.begin; m < pairs.end; ++m) {
      const int64_t image = m * kImagePairs, half = to.rows.size() * to.pixels * blocks.size() * kAmxTile;
      const bool in_place = from.in_place(image, to.rows) && from.in_place(image + kAmxRows, to.rows);
      if (!in_place) {
        from.gather(image, to.rows, blocks, copy);
        from.gather(image + kAmxRows, to.rows, blocks, copy + half);
      }
      for (int64_t r = to.rows.begin; r < to.rows.end; ++r)
        for (int64_t j = 0; j < to.pixels; ++j)
          for (int64_t d = 0; d < blocks.size(); ++d) {
            const bf16* a =
                in_place ? from.data + image * from.part() + (r * from.w + j) * from.c + (blocks.begin + d) * kAmxDepth
                         : copy + (((r - to.rows.begin) * to.pixels + j) * blocks.size() + d) * kAmxTile;
            const TilePair pair{a, a + (in_place ? kAmxRows * from.part() : half), in_place ? from.part() : kAmxDepth};
            bf16* const low = to.row(2 * d, m - pairs.begin, r) + j * kAmxTile;
            if constexpr (transposed) pair_images_transposed(pair, low, low + to.stride());
            else pair_images(pair, low, low + to.stride());
          }
    }
  }

  void accumulate(Amx& unit, Range own, Range channels, bf16* xs, bf16* ds, bf16* copy, float* sums) const {
    for (int64_t s = own.begin; s < own.end; ++s) {
      const int64_t first = s / groups_ * together_;
      const Range pairs{first, std::min(first + together_, image_pairs_)},
          rows = part_of(parts_.rows, groups_, s % groups_);
      const Operand x{xs, needed_rows(rows), x_.pixels(), pairs.size()};
      transform<true>(x_, pairs, channels, x, copy);
      for (int64_t k = 0; k < k_blocks_; k += k_cut_) {
        const Range ks{k, std::min(k + k_cut_, k_blocks_)};
        const Operand dy{ds, rows, z_.wo, pairs.size()};
        transform<false>(dy_, pairs, ks, dy, copy);
        for (int64_t p = 0; p < 2 * channels.size(); p += 2)
          for (int64_t q = 0; q < 2 * ks.size(); q += strips_ ? 1 : 2)
            for (int64_t t = 0; t < sums_axes_.rows.taps; ++t) {
              const SumPlace at{2 * channels.begin + p, 2 * k + q, s == own.begin};
              if (strips_) add_strips(unit, x, dy, p, q, t, at, sums);
              else
                for (int64_t u = 0; u < sums_axes_.cols.taps; ++u) add_tap(unit, x, dy, p, q, t, u, at, sums);
            }
      }
    }
  }

  // The row of x under row i of dy at tap t, or null.
  const bf16* input_row(const Operand& x, int64_t p, int64_t pair, int64_t i, int64_t t) const {
    const Axis& a = sums_axes_.rows;
    const int64_t r = a.in_first + i * a.in_step + t * a.tap_step;
    return r >= x.rows.begin && r < x.rows.end ? x.row(p, pair, r) : nullptr;
  }

  struct SumPlace {
    int64_t p, q;  // in 16 channels of x and of dy
    bool first;    // nothing has been added yet
  };
  // The places of `count` sums: [channels][taps or columns]; a buffer, if they are written out at once.
  template <int count, class At> void sum_places(float* buffer, const At& at, float** to) const {
    for (int i = 0; i < count; ++i) to[i] = in_tiles_ ? buffer + i * kSums : at(i);
  }

  void add_strips(Amx& unit, const Operand& x, const Operand& dy, int64_t p, int64_t q, int64_t t, const SumPlace& at,
                  float* sums) const {
    alignas(64) float buffer[6 * kSums];
    float* to[6];
    sum_places<6>(
        buffer, [&](int i) { return tile(sums, at.p + i / 3, at.q, 3 * t + i % 3); }, to);
    load_sums<6>(unit, to, at.first);
    for (int64_t m = 0; m < x.pairs; ++m)
      for (int64_t i = dy.rows.begin; i < dy.rows.end; ++i)
        if (const bf16* from = input_row(x, p, m, i, t))
          pixel_row(unit, from, from + x.stride(), dy.row(q, m, i), z_.wo);
    store_sums<6>(unit, to);
    for (int i = 0; i < 3 && in_tiles_; ++i) write_tiles(to[i], to[i + 3], at.q, at.p, 3 * t + i);
  }

  // Twice 16 channels of x by twice 16 of dy, at one tap.
  void add_tap(Amx& unit, const Operand& x, const Operand& dy, int64_t p, int64_t q, int64_t t, int64_t u,
               const SumPlace& at, float* sums) const {
    const Axis& cols = sums_axes_.cols;
    const int64_t tap = t * cols.taps + u;
    alignas(64) float buffer[4 * kSums];
    float* to[4];
    sum_places<4>(
        buffer, [&](int i) { return tile(sums, at.p + i / 2, at.q + i % 2, tap); }, to);
    load_sums<4>(unit, to, at.first);
    for (int64_t m = 0; m < x.pairs; ++m)
      for (int64_t i = dy.rows.begin; i < dy.rows.end; ++i)
        if (const bf16* from = input_row(x, p, m, i, t)) {
          const bf16* g = dy.row(q, m, i);
          for (int64_t j = 0; j < z_.wo; ++j) {
            const int64_t col = cols.in_first + j * cols.in_step + u * cols.tap_step;
            if (col < 0 || col >= x.pixels) continue;
            const bf16* pixel = from + col * kAmxTile;
            unit.load<4>(pixel, 64), unit.load<6>(g + j * kAmxTile, 64);
            unit.product<0, 4, 6>();
            unit.load<7>(g + dy.stride() + j * kAmxTile, 64), unit.product<1, 4, 7>();
            unit.load<5>(pixel + x.stride(), 64), unit.product<2, 5, 6>();
            unit.product<3, 5, 7>();
          }
        }
    store_sums<4>(unit, to);
    for (int i = 0; i < 2 && in_tiles_; ++i) write_tiles(to[i], to[i + 2], at.q + i, at.p, tap);
  }

  // Adds the ranges in order.
  void write_out(float* sums) const {
    const auto total = [&](int64_t p, int64_t q, int64_t tap, float* to) {
      std::copy_n(tile(sums, p, q, tap), kSums, to);
      for (int64_t r = 1; r < ranges_; ++r) {
        const float* more = tile(sums + r * sums_size(), p, q, tap);
        for (int64_t i = 0; i < kSums; ++i) to[i] += more[i];
      }
    };
    parallel_for(2 * k_blocks_, 1, [&](int64_t begin, int64_t end) {
      alignas(64) float low[kSums], high[kSums];
      for (int64_t q = begin; q < end; ++q)
        for (int64_t p = 0; p < 2 * c_blocks_; p += 2)
          for (int64_t tap = 0; tap < taps_; ++tap) {
            total(p, q, tap, low), total(p + 1, q, tap, high);
            write_tiles(low, high, q, p, tap);
          }
    });
  }
  static void store_floats(Row v, int64_t count, float* to, bool stream) {
    if (count >= kAmxRows) Amx::store_line(to, v, stream);
    else if (count > 0) std::memcpy(to, &v, size_t(count) * sizeof(float));
  }
  // Two tiles, whose rows are 32 channels of x, and whose columns those of dy.
  void write_tiles(const float* low, const float* high, int64_t q, int64_t p, int64_t tap) const {
    static constexpr float kNone[kAmxDepth] = {};
    const int64_t k = q * kAmxPairs, c = p * kAmxRows, row = z_.taps() * z_.cg;
    Row a[kAmxRows], b[kAmxRows];
    std::memcpy(a, low, sizeof a), std::memcpy(b, high, sizeof b);
    transpose_tile(a), transpose_tile(b);
    const int64_t count = std::min(x_.whole_depth() - c, kAmxDepth);
    const bool stream = dw_.size() > kLargeGradient;
    for (int64_t i = 0; i < std::min(z_.kg - k, kAmxPairs); ++i) {
      const int64_t at = (k + i) * row + tap * z_.cg + c;
      if (dw_.dtype == DType::f32) {
        float* const to = dw_.as<float>() + at;
        store_floats(a[i], count, to, stream), store_floats(b[i], count - kAmxRows, to + kAmxRows, stream);
      } else {
        Amx::round(reinterpret_cast<const float*>(&a[i]), reinterpret_cast<const float*>(&b[i]), kNone,
                   dw_.as<bf16>() + at, count);
      }
    }
  }

  View dw_;
  ConvSizes z_;
  std::optional<Normalize<bf16>> norm_;
  bool folded_;
  Axes axes_, sums_axes_;
  AmxParts parts_;
  AmxImages x_, dy_;
  int64_t taps_, c_blocks_, k_blocks_, image_pairs_;
  int64_t c_cut_, k_cut_, groups_, together_, ranges_;
  bool strips_, in_tiles_;  // one step: its sums never leave the tiles but to be written out
};

}  // namespace

void RT_UNIT::amx_backward_weights(View dw, View dy, View x, Window p, PixelNorm of_x) {
  const ConvSizes z(dy, x, dw);
  const Axes axes = forward_axes(z, p);
  const int64_t size = z.kg * z.taps() * z.cg * int64_t(size_of(dw.dtype));  // of a group, in bytes
  View own = dw;
  for (int64_t g = 0; g < z.groups; ++g) {
    own.data = static_cast<char*>(dw.data) + g * size;
    if (z.n == 0) std::fill_n(static_cast<char*>(own.data), size, 0);
    else AmxWeights(own, dy.as<bf16>() + g * z.kg, x.as<bf16>() + g * z.cg, z, axes, of_x).run(dw.device);
  }
}

RT_ISA_END
