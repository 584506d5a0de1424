#pragma once
#include <vector>

#include "core/fields.h"
#include "kernels/random_view.h"

namespace ringtape {

// How training images are augmented where labels are learnt.
void visit(Fields& f, Augmentation& o);

// The random views of an image that a self-supervised method compares.
struct ViewOptions {
  int64_t count = 2;            // of the image's size
  ViewAugmentation first = {};  // of each of them, but for
  double blur_second = -1;      // the second's blur; negative: as of the first
  double solarize_second = 0;
  int64_t small_count = 0;      // further views, smaller and of smaller parts, otherwise like the first
  int64_t small_size = 16;      // their height and width
  double small_crop_low = 0.05, small_crop_high = 0.14;
};
void visit(Fields& f, ViewOptions& o);

// One after the other. Throws UsageError where a least value is above its maximum.
std::vector<ViewAugmentation> views_of(const ViewOptions& o);

}  // namespace ringtape
