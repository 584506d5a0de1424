#include "train/data/views.h"

#include "core/check.h"
#include "kernels/image_policy.h"

namespace ringtape {

void visit(Fields& f, Augmentation& o) {
  constexpr FieldRange kPixels{0, 4096};
  f("crop-padding", o.pad,
    {.help = "zeros on each side of a training image before it is cropped at random", .unit = "N", .range = kPixels});
  f("crop-reflect", o.reflect, {.help = "--crop-padding mirrors the image instead of adding zeros"});
  f("flip", o.flip, {.help = "flip half of the training images left to right"});
  f("alternate-flip", o.alternate_flip,
    {.help = "flip each training image left to right in every other epoch, from a random first one"});
  f("rotation", o.rotation,
    {.help = "rotate a training image by a random angle of at most this many degrees to either side",
     .unit = "DEG",
     .range = {0, 180}});
  f("cutout", o.cutout,
    {.help = "set a square of side N in each training image to the mean", .unit = "N", .range = kPixels});
}

static constexpr FieldRange kArea{1e-4, 1};

// What views and training images with labels have in common, by the same names.
static void visit_crops(Fields& f, ViewAugmentation& o) {
  f("crop-low", o.crop_low,
    {.help = "smallest part of an image's area that is cut out and resized to the image's size",
     .unit = "X",
     .range = kArea});
  f("crop-high", o.crop_high, {.help = "largest part of an image's area that is cut out", .unit = "X", .range = kArea});
}
static void visit_colours(Fields& f, ViewAugmentation& o) {
  constexpr FieldRange kFactor{0, 100};
  f("jitter", o.jitter,
    {.help = "probability that an image's brightness, contrast, saturation and hue change, in random order",
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
  f("gray", o.gray, {.help = "probability that an image becomes gray", .unit = "P", .range = kProbability});
  f("blur", o.blur, {.help = "probability of a Gaussian blur of 0.1 to 2 pixels", .unit = "P", .range = kProbability});
}

static void check_crops(const ViewAugmentation& o) {
  RT_CHECK_AS(UsageError, o.crop_low <= o.crop_high, "--crop-low ", o.crop_low, ": above --crop-high ", o.crop_high);
}

void visit(Fields& f, ChangeOptions& o) {
  constexpr FieldRange kAlpha{0, 1000};
  visit_crops(f, o.view);
  visit_colours(f, o.view);
  f("policy", o.policy,
    {.help = "random operations on each training image, as torchvision's transforms of these names",
     .unit = "NAME",
     .choices = []() -> std::vector<std::string> {
       return {"none", "randaugment", "trivialaugment"};
     }});
  f("policy-ops", o.policy_ops,
    {.help = "randaugment: number of operations on an image", .unit = "N", .range = {1, 16}});
  f("policy-magnitude", o.policy_magnitude,
    {.help = "randaugment: strength of the operations", .unit = "N", .range = {0, kPolicyBins - 1}});
  f("erasing", o.erasing,
    {.help = "probability that a random rectangle of a training image is set to the mean",
     .unit = "P",
     .range = kProbability});
  f("mixup", o.mixup,
    {.help = "mix each training image and its label with those of another one, by shares from Beta(A, A); 0: do not",
     .unit = "A",
     .range = kAlpha});
  f("cutmix", o.cutmix,
    {.help = "replace a rectangle of each training image by that of another one, of a size from Beta(A, A), and that "
             "part of its label; with --mixup each batch has one of them; 0: do not",
     .unit = "A",
     .range = kAlpha});
}

ImageChanges changes_of(const ChangeOptions& o) {
  check_crops(o.view);
  ImageChanges out;
  out.view = o.view;
  out.policy = {o.policy == "randaugment"      ? PolicyKind::rand_augment
                : o.policy == "trivialaugment" ? PolicyKind::trivial_augment
                                               : PolicyKind::none,
                o.policy_ops, o.policy_magnitude};
  out.erasing = o.erasing;
  out.mixing = {o.mixup, o.cutmix};
  return out;
}

void visit(Fields& f, ViewOptions& o) {
  f("views", o.count,
    {.help = "number of random views of an image, of the image's size; 1 with mae, at least 2 with swav and dino, 2 "
             "with all others",
     .unit = "N",
     .range = {1, 64}});
  f("small-views", o.small_count,
    {.help = "swav and dino: number of additional small views, which predict the codes of the first two",
     .unit = "N",
     .range = {0, 64}});
  f("small-view-size", o.small_size,
    {.help = "swav and dino: height and width of the small views", .unit = "N", .range = {1, 4096}});
  f("small-crop-low", o.small_crop_low,
    {.help = "swav and dino: smallest part of an image's area that a small view shows", .unit = "X", .range = kArea});
  f("small-crop-high", o.small_crop_high,
    {.help = "swav and dino: largest part of an image's area that a small view shows", .unit = "X", .range = kArea});
  visit_crops(f, o.first);
  f("view-flip", o.first.flip,
    {.help = "probability that a view is flipped left to right", .unit = "P", .range = kProbability});
  visit_colours(f, o.first);
  f("blur-second", o.blur_second,
    {.help = "probability of a Gaussian blur in the second view; -1: as in the first", .unit = "P", .range = {-1, 1}});
  f("solarize-second", o.solarize_second,
    {.help = "probability that bright levels are inverted in the second view", .unit = "P", .range = kProbability});
}

std::vector<ViewAugmentation> views_of(const ViewOptions& o) {
  RT_CHECK_AS(UsageError, o.small_crop_low <= o.small_crop_high, "--small-crop-low ", o.small_crop_low,
              ": above --small-crop-high ", o.small_crop_high);
  check_crops(o.first);
  std::vector<ViewAugmentation> out(size_t(o.count), o.first);
  if (out.size() > 1) {
    if (o.blur_second >= 0) out[1].blur = o.blur_second;
    out[1].solarize = o.solarize_second;
  }
  ViewAugmentation small = o.first;
  small.crop_low = o.small_crop_low;
  small.crop_high = o.small_crop_high;
  small.size = o.small_size;
  out.insert(out.end(), size_t(o.small_count), small);
  return out;
}

}  // namespace ringtape
