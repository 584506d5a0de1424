#pragma once
#include "kernels/kernel.h"

namespace ringtape {

// Along the last axis of contiguous (N, C); f32, f64, f16, bf16.
RT_KERNEL(softmax_forward, void(View y, View x));                 // y = exp(x - max) / sum(exp(x - max))
RT_KERNEL(softmax_backward, void(View dx, View y, View dy));      // dx = y (dy - sum(y dy))
RT_KERNEL(log_softmax_forward, void(View y, View x));             // y = (x - max) - log(sum(exp(x - max)))
RT_KERNEL(log_softmax_backward, void(View dx, View y, View dy));  // dx = dy - exp(y) sum(dy)

}  // namespace ringtape
