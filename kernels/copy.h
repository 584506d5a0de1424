#pragma once
#include "kernels/kernel.h"

namespace ringtape {

// y = x, converted to y's dtype. Same shape; any strides (stride 0 in x repeats, y must not overlap itself). To b8: x
// != 0. To an integer: truncated; undefined for NaN and values out of range. From b8: 0 or 1. To 16-bit floats: rounded
// to nearest even.
RT_KERNEL(copy, void(View y, View x));

}  // namespace ringtape
