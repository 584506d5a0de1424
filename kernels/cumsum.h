#pragma once
#include "kernels/kernel.h"

namespace ringtape {

// y[o, n, r] = the sum of x[o, m, r] over m <= n; with `reverse` over m >= n. x and y (O, N, R) are contiguous; y has
// x's floating dtype, or is i64 for x of integers or b8. Sums are in f64 for f32 and f64, in f32 for 16 bits.
RT_KERNEL(cumsum_forward, void(View y, View x, bool reverse));

// The type of the sums.
template <class T>
using running_t =
    std::conditional_t<is_half_v<T>, float, std::conditional_t<std::is_floating_point_v<T>, double, uint64_t>>;

}  // namespace ringtape
