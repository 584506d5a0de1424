#pragma once
#include "kernels/kernel.h"

// Comparisons and logic (what is not 0 is true), one row each: name, condition. No gradient.
#define RT_COMPARE_OPS(X)               \
  X(equal, a == b)                      \
  X(not_equal, a != b)                  \
  X(less, a < b)                        \
  X(less_equal, a <= b)                 \
  X(greater, a > b)                     \
  X(greater_equal, a >= b)              \
  X(logical_and, ((a != 0) & (b != 0))) \
  X(logical_or, ((a != 0) | (b != 0)))  \
  X(logical_xor, ((a != 0) != (b != 0)))

namespace ringtape {

// y (b8) = the condition. a and b are both floating or both whole; they broadcast to y; any strides. Floating numbers
// are compared in the wider type.
#define X(name, ...) RT_KERNEL(name##_forward, void(View y, View a, View b));
RT_COMPARE_OPS(X)
#undef X

}  // namespace ringtape
