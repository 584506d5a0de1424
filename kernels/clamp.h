#pragma once
#include "kernels/kernel.h"

namespace ringtape {

// y = min(max(x, low), high); a NaN stays. dx = dy where low <= x <= high, the bounds included, else 0, also of NaN. Any strides.
RT_KERNEL(clamp_forward, void(View y, View x, double low, double high));
RT_KERNEL(clamp_backward, void(View dx, View x, View dy, double low, double high));

}  // namespace ringtape
