#pragma once
#include <algorithm>

#include "kernels/activation.h"
#include "kernels/kernel.h"

// Batch normalisation (Ioffe and Szegedy, 2015) over all axes except the last: x (..., C) is seen as M rows of C
// channels. x, y, residual and their gradients are contiguous and of one floating dtype. Values per channel have shape
// (C) and are f32, or f64 for f64. The passes over x are separate kernels, so that their sums can be combined across
// devices.
//   x's first axis may be P equal parts, each with statistics of its own. Then mean, var and the sums db and dw are (P,
// C), in any shape, and each part gets the bits that it would get alone.
namespace ringtape {

// P, from `each`, which is (P, C).
inline int64_t batch_norm_parts(const View& each, const View& x) {
  return std::max<int64_t>(each.size() / std::max<int64_t>(x.dims[x.rank - 1], 1), 1);
}

// Running statistics, as in PyTorch: running = (1 - momentum) running + momentum value, where value is mean, or var *
// correction: correction count / (count - 1) makes a biased variance unbiased. Of parts, their mean. batches (i64, one
// element) += 1.
struct RunningUpdate {
  View mean = {}, var = {}, batches = {};  // no data for none
  double momentum = 0, correction = 1;
};

// Mean and biased variance of each channel over the rows, by Welford's method in blocks, without overflow or
// cancellation. 0 for no rows. Both may be f64 for any x, without `running`, which is updated by them.
RT_KERNEL(batch_norm_statistics, void(View mean, View var, View x, RunningUpdate running));

// Merges the statistics of P parts of the rows: parts (P, 2 C + 1) f64, each mean, var and the number of rows, which
// may be 0. unbiased (C) is var count / (count - 1); count (1) is the number of rows of all parts. Computed in double
// in the order of the parts (Chan, Golub and LeVeque, 1979), so that the same parts give the same bits.
RT_KERNEL(batch_norm_merge, void(View mean, View var, View unbiased, View count, View parts));

// Updates running by statistics that were put together otherwise.
RT_KERNEL(batch_norm_running, void(View mean, View var, RunningUpdate running));

// y = f((x - mean) w / sqrt(var + eps) + b + residual); residual has no data for none. If mask has data, bit i % 8 of
// byte i / 8 says whether element i of y is above 0, for backward. Its size is batch_norm_mask_bytes; parts have theirs
// one after the other. On the CPU y may have no data: only the mask is written.
RT_KERNEL(batch_norm_forward, void(View y, View mask, View x, View residual, View mean, View var, View w, View b,
                                   double eps, Activation f));
constexpr int64_t batch_norm_mask_bytes(int64_t elements, int64_t parts = 1) {
  return parts * ((elements / parts + 15) / 16 * 2);
}  // even: it is written in pairs of bytes

// With dz = dy where the bit of mask is set (no mask: everywhere), else 0:
// db = sum over rows of dz, dw = sum of dz (x - mean) / sqrt(var + eps).
RT_KERNEL(batch_norm_backward_sums,
          void(View db, View dw, View dy, View mask, View x, View mean, View var, double eps));

// dx = w / sqrt(var + eps) (dz - db / count - dw / count (x - mean) / sqrt(var + eps)), where count is the number of
// rows in each mean, var, db and dw. If db and dw have no data, mean and var do not depend on x: dx = w / sqrt(var +
// eps) dz. dresidual, if it has data, = dz. dx may be dy.
RT_KERNEL(batch_norm_backward, void(View dx, View dresidual, View dy, View mask, View x, View mean, View var, View w,
                                    View db, View dw, int64_t count, double eps));

}  // namespace ringtape
