#pragma once
#include "kernels/kernel.h"

namespace ringtape {

// Reductions over any set of axes. y has x's rank, with size 1 along each reduced axis; same floating dtype, or i64 for
// sum, prod, max and min (exact modulo 2^64); any strides of x, contiguous y. Sums are pairwise in blocks, in an order
// that depends only on the shape. Over no elements: sum 0, prod 1, mean and var NaN, max and logsumexp -infinity, min
// infinity. A mean is sum / n, so it is infinite if the sum is.
RT_KERNEL(sum_forward, void(View y, View x));
RT_KERNEL(mean_forward, void(View y, View x));
RT_KERNEL(prod_forward, void(View y, View x));  // not of 16-bit numbers
RT_KERNEL(norm_forward, void(View y, View x));  // sqrt(sum x^2); not of 16-bit numbers
RT_KERNEL(max_forward, void(View y, View x));   // a NaN anywhere gives NaN
RT_KERNEL(min_forward, void(View y, View x));   // likewise
// y = top + log_sum: the maximum (0 if it is infinite) and log(sum(exp(x - top))), which are written for backward, f32
// or f64 for f64: their sum, rounded, would lose digits of log_sum.
RT_KERNEL(logsumexp_forward, void(View y, View top, View log_sum, View x));

// y = sum (x - mean)^2 / (n - correction), exactly 0 for equal numbers. mean is written for backward.
RT_KERNEL(var_forward, void(View y, View mean, View x, double correction));

// dx has x's shape; y, mean and dy broadcast to it. (sum and mean need no kernel: dx repeats dy.)
// max and min: dy is shared equally among the elements that equal y; none if it is NaN.
RT_KERNEL(max_backward, void(View dx, View x, View y, View dy));
RT_KERNEL(min_backward, void(View dx, View x, View y, View dy));
RT_KERNEL(logsumexp_backward, void(View dx, View x, View top, View log_sum, View dy));  // dy exp(x - top - log_sum)
RT_KERNEL(var_backward, void(View dx, View x, View mean, View dy, double scale));       // dy scale (x - mean)

}  // namespace ringtape
