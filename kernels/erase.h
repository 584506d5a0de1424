#pragma once
#include "core/random.h"
#include "kernels/augment.h"
#include "kernels/kernel.h"
#include "kernels/random_view.h"

namespace ringtape {

// Rows [top, top + height) and columns [left, left + width) of an image; parts of it may be outside.
struct Rectangle {
  int64_t top = 0, left = 0, height = 0, width = 0;
};

// Parts of a normalised image that are set to 0, its mean.
struct Erasing {
  double probability = 0;  // of a random rectangle, as torchvision's RandomErasing: 0.02 to 0.33 of the area, with an
                           // aspect ratio of 0.3 to 3.3, height to width
  int64_t cutout = 0;      // side of a square, as in Augmentation, at the same place
};

// Parameters of one call, and the position in the random stream.
struct EraseParams {
  EraseParams() = default;
  EraseParams(const Erasing& what, uint64_t seed, uint64_t epoch);  // throws UsageError unless 0 <= probability <= 1

  uint64_t probability = 0;  // in units of 2^-32
  AugmentParams cutout;
  uint64_t seed = 0, stream = 0;
};

// In place: erases parts of y[b], which is sample index[b] of the data set. y f32 (B, H, W, C), index i64 (B); both
// contiguous. What is erased depends only on seed, epoch and the sample.
RT_KERNEL(erase, void(View y, View index, EraseParams params));

// Up to ten rectangles are drawn until one is smaller than the image in both directions; without one, it is empty.
RT_HD inline Rectangle draw_erased(const EraseParams& p, int64_t sample, int64_t height, int64_t width) {
  constexpr int64_t kLow = int64_t(0.02 * (1 << kAreaBits)), kHigh = int64_t(0.33 * (1 << kAreaBits));
  constexpr int64_t kWidest = int64_t(0.6019864021629681 * (1 << 30));   // -log(0.3) / 2
  constexpr int64_t kTallest = int64_t(0.5969612342362173 * (1 << 30));  // log(3.3) / 2
  const uint64_t counter = uint64_t(sample) << 4;
  if (!happens(philox(p.seed, p.stream, counter).x[0], p.probability)) return {};
  for (uint64_t attempt = 1; attempt <= 10; ++attempt) {
    const Philox4 r = philox(p.seed, p.stream, counter + attempt);
    const Sides sides = sides_of(height * width, between(r.x[0], kLow, kHigh), between(r.x[1], -kTallest, kWidest));
    if (sides.height < height && sides.width < width)
      return {below(r.x[2], height - sides.height + 1), below(r.x[3], width - sides.width + 1), sides.height,
              sides.width};
  }
  return {};
}

RT_HD inline Rectangle draw_cutout(const EraseParams& p, int64_t sample, int64_t height, int64_t width) {
  if (p.cutout.cutout == 0) return {};
  const CropPlace at = place(p.cutout, sample, 0, 0, height, width);
  return {at.cut_top, at.cut_left, p.cutout.cutout, p.cutout.cutout};
}

}  // namespace ringtape
