#pragma once
#include "kernels/kernel.h"

namespace ringtape {

// index[o, r] (i64) = the first n with the largest, or smallest, x[o, n, r]; that of the first NaN if there is one. x
// (O, N, R), N > 0, of any dtype, and index (O, R) are contiguous.
RT_KERNEL(argmax_forward, void(View index, View x, bool smallest));

}  // namespace ringtape
