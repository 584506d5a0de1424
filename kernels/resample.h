#pragma once
#include "kernels/kernel.h"

namespace ringtape {

// An image's size after scaling, and where the result lies in it.
struct Scaling {
  int64_t height, width;
  int64_t top = 0, left = 0;
};

// y u8 (OH, OW, C) is the part from (top, left) on of the image x u8 (H, W, C) scaled to (height, width): PIL's
// bilinear resampling of 8-bit images, antialiased where the image shrinks, level for level (up to Pillow 12, as in
// kernels/random_view.h). Pixels are contiguous in both, and the rows of y, too; the rows of x may lie apart, as those
// of a crop do. Reads only the input that this part needs and holds only as many scaled rows as one row of y needs. H W
// and 2 height H, 2 width W must be below 2^62. Runs on the caller's thread. CPU only.
RT_KERNEL(resample, void(View y, View x, Scaling scaling));

}  // namespace ringtape
