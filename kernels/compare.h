#pragma once
#include "kernels/kernel.h"

// Comparisons, one row each: name, condition. No gradient.
#define RT_COMPARE_OPS(X)   \
  X(equal, a == b)          \
  X(not_equal, a != b)      \
  X(less, a < b)            \
  X(less_equal, a <= b)     \
  X(greater, a > b)         \
  X(greater_equal, a >= b)

namespace ringtape {

// y (b8) = the condition. a and b of one dtype; both broadcast to y; any strides. Integers are compared as doubles,
// which is exact below 2^53.
#define X(name, ...) RT_KERNEL(name##_forward, void(View y, View a, View b));
RT_COMPARE_OPS(X)
#undef X

}  // namespace ringtape
