#pragma once
#include <ringtape/kernels/kernel.h>

namespace ringtape {

// y = x / (1 + |x|); dx = dy / (1 + |x|)^2. Floating point of any dtype and strides.
RT_KERNEL(softsign_forward, void(View y, View x));
RT_KERNEL(softsign_backward, void(View dx, View x, View dy));

}  // namespace ringtape
