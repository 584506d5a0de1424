#pragma once
#include "kernels/kernel.h"

namespace ringtape {

// y = cond ? a : b. cond is b8; a and b are floating or whole as y is; all broadcast to y; any strides.
RT_KERNEL(where_forward, void(View y, View cond, View a, View b));

}  // namespace ringtape
