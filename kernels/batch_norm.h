#pragma once
#include "kernels/kernel.h"
#include "kernels/matmul.h"

// Batch normalisation (Ioffe and Szegedy, 2015) over all axes but the last: x (..., C) counts as M rows of C channels. x, y,
// residual and their gradients are contiguous and of one floating dtype; whatever there is one of a channel has shape (C) and
// is f32, f64 with f64. The passes over x are kernels of their own, so that their sums can be added up over several devices.
namespace ringtape {

// mean and biased variance of each channel over the rows, by Welford's method in blocks: neither overflows nor cancels. 0 where there
// is no row. They may be f64 for any x.
RT_KERNEL(batch_norm_statistics, void(View mean, View var, View x));

// The same of all rows from that of P parts of them: parts (P, 2 C + 1) f64, each mean, var and the number of rows, which may be 0.
// unbiased (C) is var count / (count - 1), count (1) the rows of all parts. In double and in the order of the parts (Chan, Golub and
// LeVeque, 1979): whoever has the same parts gets the same bits.
RT_KERNEL(batch_norm_merge, void(View mean, View var, View unbiased, View count, View parts));

// running = (1 - momentum) running + momentum value, where the value is mean or var correction, count / (count - 1) making a biased
// variance unbiased; and batches (i64, one element) += 1. As PyTorch does.
RT_KERNEL(batch_norm_running,
          void(View running_mean, View running_var, View batches, View mean, View var, double momentum, double correction));

// y = f((x - mean) w / sqrt(var + eps) + b + residual), residual having no data for none. mask, where it has data, is for
// backward: bit i % 8 of byte i / 8 says whether element i of y is above 0. Its size is batch_norm_mask_bytes.
RT_KERNEL(batch_norm_forward,
          void(View y, View mask, View x, View residual, View mean, View var, View w, View b, double eps, Activation f));
constexpr int64_t batch_norm_mask_bytes(int64_t elements) { return (elements + 15) / 16 * 2; }  // pairs: it is written two at a time

// With dz = dy where the mask (none: everywhere) has a bit, 0 elsewhere:
// db = sum over rows of dz, dw = sum of dz (x - mean) / sqrt(var + eps).
RT_KERNEL(batch_norm_backward_sums, void(View db, View dw, View dy, View mask, View x, View mean, View var, double eps));

// dx = w / sqrt(var + eps) (dz - db / count - dw / count (x - mean) / sqrt(var + eps)), count being the rows that mean, var, db and dw
// are of. Where db and dw have no data, mean and var do not depend on x: dx = w / sqrt(var + eps) dz. dresidual, if it has data, = dz.
RT_KERNEL(batch_norm_backward, void(View dx, View dresidual, View dy, View mask, View x, View mean, View var, View w, View db, View dw,
                                    int64_t count, double eps));

}  // namespace ringtape
