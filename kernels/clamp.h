#pragma once
#include "kernels/kernel.h"

namespace ringtape {

// y = min(max(x, low), high); NaN stays NaN. dx = dy where low <= x <= high, else 0 (also for NaN). Any strides.
RT_KERNEL(clamp_forward, void(View y, View x, double low, double high));
RT_KERNEL(clamp_backward, void(View dx, View x, View dy, double low, double high));

}  // namespace ringtape
