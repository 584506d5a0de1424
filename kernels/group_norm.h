#pragma once
#include "kernels/kernel.h"

// Group normalisation (Wu and He, 2018): x (N, M, C), with statistics of each sample and each of G groups of
// neighbouring channels over all M rows. x, y and their gradients are contiguous and of one floating dtype. w, b (C),
// their gradients and the statistics are contiguous and f32, or f64 for f64. w and b without data stand for 1 and 0.
namespace ringtape {

// y = (x - mean) w / sqrt(var + eps) + b. statistics (N, G, 2): the mean and 1 / sqrt(var + eps), without cancellation
// around a large mean, and exact for equal numbers.
RT_KERNEL(group_norm_forward, void(View y, View statistics, View x, View w, View b, double eps));

// With u = (x - mean) / sqrt(var + eps), and means over a sample's group:
// dx = (dy w - mean(dy w) - u mean(dy w u)) / sqrt(var + eps); dw = sum over samples and rows of dy u, db = sum of dy.
// dw and db have no data if they are not wanted.
RT_KERNEL(group_norm_backward, void(View dx, View dw, View db, View dy, View x, View statistics, View w));

}  // namespace ringtape
