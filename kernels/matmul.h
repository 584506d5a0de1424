#pragma once
#include "kernels/activation.h"
#include "kernels/kernel.h"

namespace ringtape {

// y[b, i, j] = sum over p of a[b, i, p] * w[b, p, j].
// Shapes (B, m, k), (B, k, n) -> (B, m, n); a and w may have any strides (transposed, sliced, stride 0 along B), y is
// contiguous. All of one floating dtype; 16-bit types accumulate in f32. k = 0 gives zeros.
RT_KERNEL(matmul_forward, void(View y, View a, View w));

// y[i, j] = f(b[j] + sum over p of x[i, p] * w[j, p]): a fully connected layer with PyTorch's weight layout. Shapes x
// (N, I), w (O, I), b (O) or without data for none -> y (N, O), contiguous. x and w may have any strides.
RT_KERNEL(linear_forward, void(View y, View x, View w, View b, Activation f));

}  // namespace ringtape
