#pragma once
#include "kernels/kernel.h"
#include "kernels/window.h"

// Two-dimensional convolution (cross-correlation, as usual in machine learning) of images in NHWC:
// x (N, H, W, C), w (K, R, S, C / groups), b (K) or with no data for none -> y (N, Ho, Wo, K), Ho and Wo from Window.
// Group g maps input channels [g C / groups, (g + 1) C / groups) to output channels [g K / groups, (g + 1) K / groups).
// All contiguous and of one floating dtype; 16-bit types accumulate in f32. The order of sums depends only on the
// shape and, of bf16, on the processor's unit (kernels/bf16_unit.h); units take subnormal numbers for zeros.
namespace ringtape {

// y[n, i, j, k] = b[k] + sum over r, s, c of x[n, i stride + r dilation - pad, ..., c] w[k, r, s, c]; x is 0 outside
// the image.
RT_KERNEL(conv2d_forward, void(View y, View x, View w, View b, Window window));
// dx = the sum of dy w over all outputs that x contributed to.
RT_KERNEL(conv2d_backward_data, void(View dx, View dy, View w, Window window));
// dx += that. cuDNN adds before it rounds to 16 bits.
RT_KERNEL(conv2d_add_backward_data, void(View dx, View dy, View w, Window window));
// dw = the sum of dy x over all images and positions. On the CPU dw may be f32 for dy and x of 16 bits.
RT_KERNEL(conv2d_backward_weights, void(View dw, View dy, View x, Window window));

// Winograd's algorithm computes 3x3 convolutions of stride 1 with at least 16 channels on both sides with a quarter of
// the multiplications. Its rounding error is three to five times as large (docs/performance.md), relative to the
// largest number within 6x6 pixels, even for outputs that do not depend on it: next to a pixel of 1e8 (a mask of -1e30)
// outputs are wrong by 100 (1e24), next to an infinity they are NaN. The same holds for gradients.
// bf16 on a processor with AVX512-BF16 but without AMX: the transformed numbers are rounded to bf16, too. The norm of
// the error is 0.007 of that of y and 0.012 of those of the gradients, where the rounding of the results alone makes
// 0.0017; next to a pixel of 1e8 outputs are wrong by 1e7.
// Arithmetic::exact_convolutions turns it off, for such images and to compare digits with another implementation; f64
// never uses it.

}  // namespace ringtape
