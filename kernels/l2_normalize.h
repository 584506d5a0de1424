#pragma once
#include "kernels/kernel.h"

namespace ringtape {

// Along the last axis of contiguous (N, C): y = x / max(||x||, eps); y may be x. norm (N) has the compute type (f64 for
// f64, else f32): forward writes it, backward reads it.
RT_KERNEL(l2_normalize_forward, void(View y, View norm, View x, double eps));

// dx = (dy - y (y . dy)) / norm where norm > eps, else dy / eps.
RT_KERNEL(l2_normalize_backward, void(View dx, View y, View norm, View dy, double eps));

}  // namespace ringtape
