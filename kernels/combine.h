#pragma once
#include "kernels/kernel.h"
#include "kernels/reduce_op.h"

// The arithmetic of collectives: combines several buffers of one size.
namespace ringtape {

inline constexpr int kMaxSources = 32;
struct Sources {
  const void* data[kMaxSources];
  int count;
};

// y = factor * (x_0 op x_1 op ... ), elementwise, in the order of the sources. y has one axis, is contiguous and of any
// dtype except b8; the sources have the same size, dtype and device. y may be one of them. avg is computed as sum: the
// caller passes 1 / n as `factor`, else 1. Integers are divided by 1 / factor, rounded to a whole number, towards zero.
// 16-bit floats are combined in f32 and rounded once. max and min propagate NaN.
RT_KERNEL(combine, void(View y, Sources x, ReduceOp op, double factor));

}  // namespace ringtape
