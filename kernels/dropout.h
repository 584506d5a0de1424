#pragma once
#include "core/random.h"
#include "kernels/kernel.h"

namespace ringtape {

// y[i] = x[i] / (1 - p) where the i-th number of the state, uniform in [0, 1), is at least p; 0 elsewhere. Contiguous.
// Backward is the same call on dy with the same state: no mask is stored.
RT_KERNEL(dropout_forward, void(View y, View x, double p, RandomState state));

}  // namespace ringtape
