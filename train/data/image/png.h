#pragma once
#include <string>

#include "core/tensor.h"

namespace ringtape {

// An image, u8 (H, W, C) on cpu:0 with C 1 or 3, as the content of a PNG file. Throws ShapeError for another shape,
// Error for what libpng refuses.
std::string encode_png(const Tensor& pixels);

}  // namespace ringtape
