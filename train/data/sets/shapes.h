#pragma once
#include "train/data/dataset.h"

namespace ringtape {

struct ShapesOptions {
  int64_t train_size = 20'000;  // images to generate
  int64_t test_size = 4'000;
};
void visit(Fields& f, ShapesOptions& o);

// Generated images of coloured shapes on textured grounds: 32x32 RGB, ten kinds of shape in turn. Image i of a split
// depends only on the seed, the split and i, not on the number of images or of threads. Throws UsageError unless both
// sizes are between 1 and 10 million.
Splits load_shapes(const DataRequest& request);

}  // namespace ringtape
