#pragma once
#include <cstdint>

#include "core/shape.h"

// How images are changed, as a program chooses it; kernels/augment.h, random_view.h, image_policy.h and mix.h do it.
namespace ringtape {

// What an image is scaled by: PIL's filters of these names.
enum class Interpolation : int8_t { bilinear, bicubic };

// Random augmentation of a training image, in the order: rotation, crop, flip, normalisation, cutout.
struct Augmentation {
  int64_t pad = 0;       // rows and columns of zeros on each side, before a random crop of y's size
  bool reflect = false;  // what is padded mirrors the image about the pixels of its border instead; pad < H and W
  bool flip = false;     // horizontal flip with probability 1/2
  bool alternate_flip = false;  // instead: in every other epoch, beginning with the first for a random half of the
                                // images (Jordan, "94% on CIFAR-10 in 3.29 seconds on a single GPU", 2024)
  double rotation = 0;  // maximum in degrees, up to 180: a random angle to either side about the centre; borders blend
                        // into zeros (PIL: hard edges)
  int64_t cutout = 0;   // side of a square at a random centre that is set to the mean; clipped at the border
};

// Settings of a random view. Steps run in the order of the fields; each has a probability and a strength. The result
// equals that of torchvision's transforms on 8-bit PIL images level for level, with the blur within one level. PIL
// means Pillow up to version 12: from 13 on it may resize the height first, so that a crop larger than its view may
// differ by a level in places (CIFAR's is never larger). The blur is torchvision's Gaussian; that of lightly and
// solo-learn is PIL's three boxes. The defaults are lightly's for SimCLR on CIFAR-10, without blur.
struct ViewAugmentation {
  double crop_low = 0.08,
         crop_high = 1;  // a crop with this share of the area, 0 < low <= high <= 1, and an aspect ratio of 3:4 to 4:3
                         // (uniform in the logarithm), resized to the view, antialiased
  double flip = 0.5;     // probability of a horizontal flip
  double jitter = 0.8;   // probability of the next four, in random order
  double brightness = 0.4, contrast = 0.4, saturation = 0.4;  // x <= 100: factor in [max(0, 1 - x), 1 + x]
  double hue = 0.1;                                           // x <= 0.5: shift in [-x, x] of a full turn
  double gray = 0.2;                                          // probability of luma in all three channels
  double blur = 0;  // probability of a Gaussian with sigma in [low, high] pixels, 0.05 <= low <= high <= 20,
  double blur_low = 0.1,
         blur_high = 2;  // cut off at 3 sigma, with reflection at the border (torchvision's GaussianBlur)
  double solarize = 0;   // probability that levels from 128 on are inverted
  int64_t size = 0;      // height and width of the view; 0: the image's. The caller of random_view allocates y

  Shape shape(const Shape& image) const {
    return size > 0 ? image.with(0, size).with(1, size) : image;
  }  // shape of a view of an image (H, W, C)
};

enum class PolicyKind : int8_t {
  none,
  rand_augment,    // `ops` operations in a row, all with strength `magnitude` of 0 to 30 (Cubuk et al., 2020)
  trivial_augment  // one operation with any of 31 strengths, in wider ranges (Müller and Hutter, 2021)
};

struct ImagePolicy {
  PolicyKind kind = PolicyKind::none;
  int64_t ops = 2, magnitude = 9;  // of rand_augment: 1 to 16; 0 to 30
};

// Mixtures of each image of a batch with the one before it (of the first with the last), as torchvision's MixUp and
// CutMix: one share for the whole batch, from Beta(alpha, alpha). With both, each batch has one of them at random.
struct Mixing {
  double mixup = 0;   // alpha: the weighted mean of both images; 0: not
  double cutmix = 0;  // alpha: a rectangle is the other image's; 0: not
  bool any() const { return mixup > 0 || cutmix > 0; }
};

}  // namespace ringtape
