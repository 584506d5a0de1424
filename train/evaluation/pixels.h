#pragma once
#include "train/data/dataset.h"

// Images as they are shown.
namespace ringtape {

// u8 (N, H, W, C): each k x k pixels (across a shorter side all of it) become one, their mean, so that no side is
// longer than `side`.
Tensor smaller(const Tensor& x, int64_t side);

// Images in f32 (N, H, W, C) as bytes, from values normalised per channel as those of the data set.
Tensor pixels_of(const Tensor& normalised, const Dataset& data);

}  // namespace ringtape
