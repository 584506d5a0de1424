#pragma once
#include <string>
#include <vector>

#include "core/fields.h"
#include "kernels/image_changes.h"
#include "train/data/loader.h"

namespace ringtape {

// The options of Augmentation, for training images in supervised runs.
void visit(Fields& f, Augmentation& o);

// The options of ImageChanges, likewise.
struct ChangeOptions {
  ViewAugmentation view = ImageChanges{}.view;
  std::string policy = "none";
  int64_t policy_ops = 2, policy_magnitude = 9;
  double erasing = 0, mixup = 0, cutmix = 0;
};
void visit(Fields& f, ChangeOptions& o);
ImageChanges changes_of(const ChangeOptions& o);  // throws UsageError if a minimum is above its maximum

// The random views of an image for a self-supervised method.
struct ViewOptions {
  int64_t count = 2;            // views of the image's size
  ViewAugmentation first = {};  // settings of each view, except
  double blur_second = -1;      // the second view's blur; negative: as in the first
  double solarize_second = 0;
  int64_t small_count = 0;  // further views of smaller parts and size, otherwise like the first
  int64_t small_size = 16;  // height and width of the small views
  double small_crop_low = 0.05, small_crop_high = 0.14;
};
void visit(Fields& f, ViewOptions& o);

// One entry per view. Throws UsageError if a minimum is above its maximum.
std::vector<ViewAugmentation> views_of(const ViewOptions& o);

}  // namespace ringtape
