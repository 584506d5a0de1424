#pragma once
#include "kernels/kernel.h"

namespace ringtape {

// y = cond ? a : b. cond is b8, the others of one floating dtype; all broadcast to y; any strides.
RT_KERNEL(where_forward, void(View y, View cond, View a, View b));

}  // namespace ringtape
