#pragma once
#include "kernels/image_policy.h"
#include "kernels/random_view_pixels.h"

// PIL's formulas for the operations of a policy, for one pixel or one level.
namespace ringtape {

RT_HD inline bool is_move(PolicyOp op) { return op >= PolicyOp::shear_x && op <= PolicyOp::rotate; }

// The number of the pixel at (y, x), in units of 2^-16, or -1 outside of the image.
RT_HD inline int32_t pixel_at(int32_t y, int32_t x, int32_t height, int32_t width) {
  x >>= 16, y >>= 16;
  return x >= 0 && x < width && y >= 0 && y < height ? y * width + x : -1;
}

// PIL blends in f32: `from` + factor (to - from), where product and sum are both rounded, and the fraction is dropped.
// Products of a factor come from an array, product[kMaxLevel + to - from], so that no compiler fuses the two.
inline constexpr int kMaxLevel = 255, kProducts = 2 * kMaxLevel + 1;
RT_HD inline float blend_product(float factor, int i) { return factor * float(i - kMaxLevel); }
RT_HD inline uint8_t blended_by(int32_t from, int32_t to, const float* product) {
  const float level = float(from) + product[kMaxLevel + to - from];
  return uint8_t(int32_t(smaller(greater(level, 0.0f), 255.0f)));
}

// PIL's SMOOTH: the mean of a pixel, five times, and its neighbours, in f32. Sums of whole numbers over 13 are far
// enough from half a level for this to be the same. `sum` is of all nine pixels. The border stays, and so does an image
// without more than a border.
RT_HD inline int32_t smoothed(int32_t sum, int32_t centre) { return (2 * (sum + 4 * centre) + 13) / 26; }

// f64 as in Python: the product is rounded before it is added.
RT_HD inline uint8_t stretched(int32_t level, int32_t least, int32_t most) {
  if (most <= least) return uint8_t(level);
  const double scale = 255.0 / double(most - least);
  volatile double product = double(level) * scale, offset = -double(least) * scale;
  return uint8_t(int32_t(smaller(greater(product + offset, 0.0), 255.0)));
}

// The new levels of a channel with this histogram.
RT_HD inline void auto_contrast_levels(uint8_t* to, const int32_t* histogram) {
  int32_t least = 0, most = 255;
  while (least < 255 && histogram[least] == 0) ++least;
  while (most > 0 && histogram[most] == 0) --most;
  for (int32_t i = 0; i < 256; ++i) to[i] = stretched(i, least, most);
}

RT_HD inline void equalized_levels(uint8_t* to, const int32_t* histogram) {
  int32_t pixels = 0, last = 0, different = 0;
  for (int i = 0; i < 256; ++i)
    if (histogram[i] > 0) pixels += last = histogram[i], ++different;
  const int32_t step = (pixels - last) / 255;
  int32_t n = step / 2;
  for (int i = 0; i < 256; n += histogram[i++])
    to[i] = uint8_t(different <= 1 || step == 0 ? i : smaller(n / step, 255));
}

// Whether the new levels of an operation follow from each channel's histogram.
RT_HD inline bool by_histogram(PolicyOp op) { return op == PolicyOp::auto_contrast || op == PolicyOp::equalize; }
// Whether it replaces each level by another one, without looking at other pixels and channels.
RT_HD inline bool by_level(PolicyOp op) {
  return by_histogram(op) || op == PolicyOp::brightness || op == PolicyOp::contrast || op == PolicyOp::posterize ||
         op == PolicyOp::solarize;
}
// The new level; `mean` is the image's mean luma.
RT_HD inline uint8_t changed_level(const PolicyParams& p, const PolicyStep& step, int32_t level, int32_t mean,
                                   const float* product) {
  switch (step.op) {
    case PolicyOp::brightness: return blended_by(0, level, product);
    case PolicyOp::contrast: return blended_by(mean, level, product);
    case PolicyOp::posterize: return uint8_t(level & p.kept_bits[step.bin]);
    default: return uint8_t(level < p.threshold[step.bin] ? level : 255 - level);
  }
}

}  // namespace ringtape
