#pragma once
#include "kernels/kernel.h"

namespace ringtape {

// y[b, i, j] = x[b, i, j] where j - i <= diagonal, or with `upper` where j - i >= diagonal, else 0. x and y (B, M, N)
// are contiguous, of the same dtype (any).
RT_KERNEL(triangle_forward, void(View y, View x, int64_t diagonal, bool upper));

}  // namespace ringtape
