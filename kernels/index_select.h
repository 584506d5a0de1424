#pragma once
#include "kernels/kernel.h"

namespace ringtape {

// y[o, i, r] = x[o, index[i], r]: x (O, N, R) and y (O, I, R) contiguous, of the same dtype (any); index (I) i64 in [0,
// N). An index out of range throws UsageError on the CPU.
RT_KERNEL(index_select_forward, void(View y, View x, View index));

// dx[o, n, r] = sum of dy[o, i, r] over the i with index[i] = n, in the order of i, so that results are reproducible.
RT_KERNEL(index_select_backward, void(View dx, View dy, View index));

}  // namespace ringtape
