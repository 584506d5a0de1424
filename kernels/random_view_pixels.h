#pragma once
#include "kernels/random_view.h"
#include "kernels/resample_taps.h"

// The steps of a random view for one pixel. All in integers except the hue, whose few floating-point operations must
// not be contracted by a compiler, so that they round the same everywhere.
namespace ringtape {

// from + factor (x - from), rounded down: PIL's blend.
RT_HD inline int32_t blended(int32_t from, int32_t x, int32_t factor) {
  return smaller(greater(((from << kFactorBits) + factor * (x - from)) >> kFactorBits, 0), 255);
}

RT_HD inline int32_t luma(int32_t r, int32_t g, int32_t b) { return (19595 * r + 38470 * g + 7471 * b + 32768) >> 16; }

// The mean of n lumas, rounded like PIL's for the contrast.
RT_HD inline int32_t mean_luma(int64_t sum, int64_t n) { return int32_t((2 * sum + n) / (2 * n)); }

struct Rgb {
  int32_t r, g, b;
};

// PIL's conversion to 8-bit hue, saturation and value, with `turn` added to the hue modulo 256, and back. Forward: f32
// and f64 as in PIL, where each quotient and sum is rounded. Back: all numbers are multiples of 1 / (255 85), and none
// is half-way between two levels, where PIL's rounding errors could matter. A channel is v (1 - s m), where m goes from
// 0 to 1 within one sextant of the circle, and back on the other side. Without branches, so that it vectorises.
RT_HD inline int32_t channel_of_hue(int32_t angle, int32_t s,
                                    int32_t v) {  // angle: relative to the channel's, in sextants / 85
  angle -= angle >= 510 ? 510 : 0;
  const int32_t m = greater(smaller(smaller(angle, 340 - angle), 85), 0);
  return int32_t((uint32_t(v) * uint32_t(255 * 85 - s * m) + 255 * 85 / 2) / (255 * 85));
}
RT_HD inline Rgb turned_hue(Rgb x, int32_t turn) {
  const int32_t v = greater(greater(x.r, x.g), x.b), least = smaller(smaller(x.r, x.g), x.b), range = v - least;
  const float t = float(least + 2 * v - x.r - x.g - x.b) / float(greater(range, 1));  // (v - the middle one) / range
  const float from_red = x.g >= x.b ? 1.0f - t : t - 1.0f, from_green = x.r >= x.b ? 1.0f + t : 3.0f - t;
  const float from_blue = x.g >= x.r ? 3.0f + t : 5.0f - t;
  const float sextants = x.r == v ? from_red : x.g == v ? from_green : from_blue;
  const double turns = double(sextants) / 6.0 + 1.0;
  const int32_t hue =
      int32_t(double(float(turns - (turns >= 1.0 ? 1.0 : 0.0))) * 255.0);  // irrelevant for a gray: s is 0
  const int32_t s = int32_t(double(float(range) / float(greater(v, 1))) * 255.0);
  const int32_t angle = 2 * ((hue + turn) & 255);
  return {channel_of_hue(angle + 425, s, v), channel_of_hue(angle + 255, s, v), channel_of_hue(angle + 85, s, v)};
}

RT_HD inline uint8_t solarized(uint8_t x) { return x < 128 ? x : uint8_t(255 - x); }

// A symmetric Gaussian of 2 radius + 1 pixels, whose weights sum to 2^kBlurBits. Between the two passes pixels have 8
// more bits.
inline constexpr int kBlurBits = 16, kMaxRadius = 60;
RT_HD inline int64_t blur_radius(int64_t sigma, int64_t height, int64_t width) {
  return smaller((3 * sigma + (1 << kSigmaBits) - 1) >> kSigmaBits, smaller(height, width) - 1);
}

// Weights of pixels at distance 0 .. radius: w[k] = exp(-k^2 / (2 sigma^2)), normalised; w[0] takes the rounding error.
RT_HD inline void blur_weights(int32_t* w, int64_t sigma, int64_t radius) {
  constexpr int64_t kLog2 = int64_t(0.6931471805599453 * (1 << 28));
  const int64_t inverse = (int64_t{1} << 59) / (sigma * sigma);  // 1 / (2 sigma^2) in units of 2^-28
  const auto gauss = [=](int64_t k) {                            // in units of 2^-30
    const int64_t x = k * k * inverse, halvings = x / kLog2;
    return halvings > 30 ? 0 : fixed_exp(-(x - halvings * kLog2) * 4) >> halvings;
  };
  int64_t sum = int64_t{1} << 30, rest = 1 << kBlurBits;
  for (int64_t k = 1; k <= radius; ++k) sum += 2 * gauss(k);
  for (int64_t k = 1; k <= radius; ++k) {
    w[k] = int32_t(((gauss(k) << kBlurBits) + sum / 2) / sum);
    rest -= 2 * w[k];
  }
  w[0] = int32_t(rest);
}

// Round the sums of the first and the second pass.
RT_HD inline uint16_t blurred_once(uint32_t sum) { return uint16_t((sum + 128) >> 8); }
RT_HD inline uint8_t blurred_twice(uint32_t sum) { return uint8_t((sum + (1u << 23)) >> 24); }

}  // namespace ringtape
