#pragma once
#include "core/random.h"
#include "kernels/augment.h"
#include "kernels/kernel.h"
#include "kernels/resample_taps.h"

namespace ringtape {

// Units of the fixed-point numbers of a view. All choices are computed in integers, so that every device and
// instruction set makes the same ones. With factors of 14 bits PIL's own f32 arithmetic is exact, up to a factor of 2.
inline constexpr int kFactorBits = 14, kAreaBits = 30, kSigmaBits = 16;

// Parameters of one call: a ViewAugmentation in the kernels' units, and the random stream. Throws UsageError for a
// field out of the range above, or a view not in [0, 256).
struct RandomViewParams {
  RandomViewParams() = default;
  RandomViewParams(const ViewAugmentation& what, uint64_t seed, uint64_t epoch, int view, bool gathered);

  int64_t area[2] = {};                // low and high, in units of 2^-kAreaBits
  int64_t factor[3][2] = {}, hue = 0;  // brightness, contrast, saturation: in units of 2^-kFactorBits
  int64_t sigma[2] = {};               // in units of 2^-kSigmaBits
  uint64_t flip = 0, jitter = 0, gray = 0, blur = 0, solarize = 0;  // in units of 2^-32
  uint64_t seed = 0, stream = 0;
  bool gathered = false;
  Interpolation how = Interpolation::bilinear;  // by which crops are resized
  bool precropped = false;  // the crop is the whole image: the images have been cropped before. The other choices stay
};

// Throws ShapeError unless images (H, W, C) can give views (OH, OW, C); changes of colour need C = 3.
void check_view(const ViewAugmentation& what, const Shape& image, const Shape& view);

// y[b] is a random view of image index[b] (if gathered: of image b, which is sample index[b] of the data set), with
// each byte replaced by its entry in the table. y (B, OH, OW, C), floating-point or u8, images u8 (N, H, W, C), index
// i64 (B) in [0, N), table (C, 256) of y's dtype; all contiguous, with shapes as in check_view. The view of a sample
// depends only on seed, epoch, its index and the number of the view; every device and instruction set gives the same
// bits.
RT_KERNEL(random_view, void(View y, View images, View index, View table, RandomViewParams params));

enum class Jitter : int8_t { brightness, contrast, saturation, hue };

// The random choices for one view.
struct RandomView {
  int64_t top, left, height, width;  // the crop
  int64_t sigma;                     // of the blur in units of 2^-kSigmaBits; 0: none
  int32_t factor[3];                 // brightness, contrast, saturation, in units of 2^-kFactorBits
  int32_t turn;                      // change of hue in steps of 1/255 of a full turn, modulo 256; -1: none
  Jitter order[4];
  bool flip, jitter, gray, solarize;
};

// e^x by Taylor's series; x and the result in units of 2^-30, |x| < 1.
RT_HD inline int64_t fixed_exp(int64_t x) {
  constexpr int64_t kOne = int64_t{1} << 30;
  int64_t e = kOne;
  for (int64_t k = 14; k >= 1; --k) e = kOne + ((x * e) >> 30) / k;
  return e;
}

// The largest r with r r <= x, for x in [0, 2^62).
RT_HD inline int64_t whole_root(int64_t x) {
  int64_t root = 0;
  for (int64_t bit = int64_t{1} << 31; bit > 0; bit >>= 1)
    if ((root + bit) * (root + bit) <= x) root += bit;
  return root;
}

RT_HD inline bool happens(uint32_t bits, uint64_t probability) { return bits < probability; }

// [low, high]
RT_HD inline int64_t between(uint32_t bits, int64_t low, int64_t high) { return low + below(bits, high - low + 1); }

// Of a part of an image: sqrt(area / aspect) and sqrt(area aspect), rounded. `share` is its area as a part of the
// image's, in units of 2^-kAreaBits; the aspect ratio, width to height, is e^2x, with x in units of 2^-30.
struct Sides {
  int64_t height, width;
};
RT_HD inline Sides sides_of(int64_t pixels, int64_t share, int64_t x) {
  constexpr int kRootBits = kAreaBits / 2;
  constexpr int64_t kHalf = int64_t{1} << (kRootBits + 29);
  const int64_t side = whole_root(pixels * share);
  return {(side * fixed_exp(-x) + kHalf) >> (kRootBits + 30), (side * fixed_exp(x) + kHalf) >> (kRootBits + 30)};
}

// A crop that does not fit is drawn again, up to ten times in all. After that it is the largest crop in the middle with
// an aspect ratio of 3:4 to 4:3.
RT_HD inline void draw_crop(RandomView& v, const RandomViewParams& p, uint64_t counter, int64_t height, int64_t width) {
  constexpr int64_t kHalfLog = int64_t(0.14384103622589045 * (1 << 30));  // log(4/3) / 2
  for (int attempt = 0; attempt < 10; ++attempt) {
    const Philox4 r = philox(p.seed, p.stream, counter + uint64_t(attempt));
    const Sides sides =
        sides_of(height * width, between(r.x[0], p.area[0], p.area[1]), between(r.x[1], -kHalfLog, kHalfLog));
    v.height = sides.height, v.width = sides.width;
    if (v.width > 0 && v.width <= width && v.height > 0 && v.height <= height) {
      v.top = below(r.x[2], height - v.height + 1);
      v.left = below(r.x[3], width - v.width + 1);
      return;
    }
  }
  v.height = 3 * height > 4 * width ? (8 * width + 3) / 6 : height;
  v.width = 3 * width > 4 * height ? (8 * height + 3) / 6 : width;
  v.top = (height - v.height) / 2;
  v.left = (width - v.width) / 2;
}

// One of the 24 orders, by the factorial digits of `number`.
RT_HD inline void draw_order(Jitter (&order)[4], int64_t number) {
  for (int i = 0; i < 4; ++i) order[i] = Jitter(i);
  for (int i = 0; i < 3; ++i) {
    const int64_t other = i + number % (4 - i);
    number /= 4 - i;
    const Jitter kept = order[i];
    order[i] = order[other];
    order[other] = kept;
  }
}

RT_HD inline RandomView draw_view(const RandomViewParams& p, int64_t sample, int64_t height, int64_t width) {
  RandomView v;
  const uint64_t counter = uint64_t(sample) << 4;
  if (p.precropped) v.top = v.left = 0, v.height = height, v.width = width;
  else draw_crop(v, p, counter, height, width);
  const Philox4 which = philox(p.seed, p.stream, counter + 10), how = philox(p.seed, p.stream, counter + 11);
  v.flip = happens(which.x[0], p.flip);
  v.jitter = happens(which.x[1], p.jitter);
  v.gray = happens(which.x[2], p.gray);
  draw_order(v.order, below(which.x[3], 24));
  for (int i = 0; i < 3; ++i) v.factor[i] = int32_t(between(how.x[i], p.factor[i][0], p.factor[i][1]));
  v.turn = p.hue > 0 ? int32_t(between(how.x[3], -p.hue, p.hue) * 255 / (1 << kFactorBits)) & 255
                     : -1;  // rounded to 0, as F_pil does
  const Philox4 last = philox(p.seed, p.stream, counter + 12);
  v.sigma = happens(last.x[0], p.blur) ? between(last.x[1], p.sigma[0], p.sigma[1]) : 0;
  v.solarize = happens(last.x[2], p.solarize);
  return v;
}

}  // namespace ringtape
