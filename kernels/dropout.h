#pragma once
#include "core/random.h"
#include "kernels/kernel.h"

namespace ringtape {

// y[i] = x[i] / (1 - p) where the state's i-th number, uniform in [0, 1), is at least p; else 0. Contiguous. Backward
// is the same call on dy with the same state: no mask is stored.
RT_KERNEL(dropout_forward, void(View y, View x, double p, RandomState state));

}  // namespace ringtape
