#pragma once
#include "kernels/kernel.h"

// Layer normalisation (Ba, Kiros and Hinton, 2016), and root mean square normalisation without a centre (Zhang and
// Sennrich, 2019), of the rows of x (R, D). x, y and their gradients are contiguous and of one floating dtype. w, b
// (D), their gradients and the statistics are contiguous and f32, or f64 for f64. w and b without data stand for 1 and
// 0.
namespace ringtape {

// y = (x - mean) w / sqrt(mean((x - mean)^2) + eps) + b, where mean is 0 unless `centred`. statistics (R, 3): of each
// row the mean, as the sum of two numbers, since one would lose digits of the distances from a large mean; and
// 1 / sqrt(...). Two passes: exact for equal numbers.
RT_KERNEL(layer_norm_forward, void(View y, View statistics, View x, View w, View b, double eps, bool centred));

// With u = (x - mean) / sqrt(...): dx = (dy w - mean(dy w) - u mean(dy w u)) / sqrt(...), the first mean only if
// centred; dw = sum over rows of dy u, db = sum of dy. dw and db have no data if they are not wanted.
RT_KERNEL(layer_norm_backward, void(View dx, View dw, View db, View dy, View x, View statistics, View w, bool centred));

}  // namespace ringtape
