#include "train/data/views.h"

#include "core/check.h"

namespace ringtape {

void visit(Fields& f, Augmentation& o) {
  constexpr Bounds kPixels{0, 4096};
  f("crop-padding", o.pad,
    {.help = "zeros on each side of a training image before it is cropped at random", .unit = "N", .range = kPixels});
  f("flip", o.flip, {.help = "flip half of the training images left to right"});
  f("rotation", o.rotation,
    {.help = "rotate a training image by a random angle of at most this many degrees to either side",
     .unit = "DEG",
     .range = {0, 180}});
  f("cutout", o.cutout,
    {.help = "set a square of side N in each training image to the mean", .unit = "N", .range = kPixels});
}

static constexpr Bounds kArea{1e-4, 1};

static void visit(Fields& f, ViewAugmentation& o) {
  constexpr Bounds kFactor{0, 100};
  f("crop-low", o.crop_low,
    {.help = "smallest part of an image's area that a view shows", .unit = "X", .range = kArea});
  f("crop-high", o.crop_high,
    {.help = "largest part of an image's area that a view shows", .unit = "X", .range = kArea});
  f("view-flip", o.flip,
    {.help = "probability that a view is flipped left to right", .unit = "P", .range = kProbability});
  f("jitter", o.jitter,
    {.help = "probability that a view's brightness, contrast, saturation and hue change, in random order",
     .unit = "P",
     .range = kProbability});
  f("brightness", o.brightness,
    {.help = "jitter: brightness is scaled by a random factor in [1 - X, 1 + X]", .unit = "X", .range = kFactor});
  f("contrast", o.contrast,
    {.help = "jitter: contrast is scaled by a random factor in [1 - X, 1 + X]", .unit = "X", .range = kFactor});
  f("saturation", o.saturation,
    {.help = "jitter: saturation is scaled by a random factor in [1 - X, 1 + X]", .unit = "X", .range = kFactor});
  f("hue", o.hue,
    {.help = "jitter: hue is shifted by a random part of a full turn in [-X, X]", .unit = "X", .range = {0, 0.5}});
  f("gray", o.gray, {.help = "probability that a view becomes gray", .unit = "P", .range = kProbability});
  f("blur", o.blur, {.help = "probability of a Gaussian blur of 0.1 to 2 pixels", .unit = "P", .range = kProbability});
}

void visit(Fields& f, ViewOptions& o) {
  f("views", o.count,
    {.help = "number of random views of an image, of the image's size; only swav can use more than two",
     .unit = "N",
     .range = {2, 64}});
  f("small-views", o.small_count,
    {.help = "swav: number of additional small views, which predict the codes of the first two",
     .unit = "N",
     .range = {0, 64}});
  f("small-view-size", o.small_size,
    {.help = "swav: height and width of the small views", .unit = "N", .range = {1, 4096}});
  f("small-crop-low", o.small_crop_low,
    {.help = "swav: smallest part of an image's area that a small view shows", .unit = "X", .range = kArea});
  f("small-crop-high", o.small_crop_high,
    {.help = "swav: largest part of an image's area that a small view shows", .unit = "X", .range = kArea});
  visit(f, o.first);
  f("blur-second", o.blur_second,
    {.help = "probability of a Gaussian blur in the second view; -1: as in the first", .unit = "P", .range = {-1, 1}});
  f("solarize-second", o.solarize_second,
    {.help = "probability that bright levels are inverted in the second view", .unit = "P", .range = kProbability});
}

std::vector<ViewAugmentation> views_of(const ViewOptions& o) {
  RT_CHECK_AS(UsageError, o.small_crop_low <= o.small_crop_high, "--small-crop-low ", o.small_crop_low,
              ": above --small-crop-high ", o.small_crop_high);
  const ViewAugmentation& first = o.first;
  RT_CHECK_AS(UsageError, first.crop_low <= first.crop_high, "--crop-low ", first.crop_low, ": above --crop-high ",
              first.crop_high);
  std::vector<ViewAugmentation> out(size_t(o.count), o.first);
  if (o.blur_second >= 0) out[1].blur = o.blur_second;
  out[1].solarize = o.solarize_second;
  ViewAugmentation small = o.first;
  small.crop_low = o.small_crop_low;
  small.crop_high = o.small_crop_high;
  small.size = o.small_size;
  out.insert(out.end(), size_t(o.small_count), small);
  return out;
}

}  // namespace ringtape
