#pragma once
#include "kernels/elementwise_ops.h"
#include "kernels/kernel.h"

namespace ringtape {

// y (b8) = the condition. a and b are both floating or both whole; they broadcast to y; any strides. Floating numbers
// are compared in the wider type.
#define X(name, ...) RT_KERNEL(name##_forward, void(View y, View a, View b));
RT_COMPARE_OPS(X)
#undef X

}  // namespace ringtape
