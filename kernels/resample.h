#pragma once
#include "kernels/kernel.h"
#include "kernels/resample_taps.h"

namespace ringtape {

// How an image is scaled, and where the result lies in what it becomes.
struct Scaling {
  ScaledAxis rows, columns;
  int64_t top = 0, left = 0;
};

// y u8 (OH, OW, C) is the part from (top, left) on of the image x u8 (H, W, C) scaled to (rows.to, columns.to): PIL's
// bilinear or bicubic resampling of 8-bit images, antialiased where the image shrinks, level for level (up to Pillow
// 12, as in kernels/random_view.h). Pixels are contiguous in both, and the rows of y, too; the rows of x may lie apart,
// as those of a crop do. Reads only the input that this part needs and holds only as many scaled rows as one row of y
// needs. H and W are the axes' pixels(); H W and 2 to (from + 2 by) of each axis must be below 2^62; bicubic, also
// m^3 (from / to + 1) at most kMaxCubic, where m is the greater of from and by to. Runs on the thread of its caller.
// CPU only.
inline constexpr double kMaxCubic = 0x1p57;
RT_KERNEL(resample, void(View y, View x, Scaling scaling));

}  // namespace ringtape
