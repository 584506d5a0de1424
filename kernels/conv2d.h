#pragma once
#include "kernels/kernel.h"
#include "kernels/window.h"

// Two-dimensional convolution (cross-correlation, as everywhere in the field) of images in NHWC:
// x (N, H, W, C), w (K, R, S, C / groups), b (K) or with no data for none -> y (N, Ho, Wo, K), Ho and Wo as Window says.
// Group g maps input channels [g C / groups, (g + 1) C / groups) to output channels [g K / groups, (g + 1) K / groups).
// All contiguous and of one floating dtype; 16-bit types accumulate in f32. Sums come in an order that the shape alone decides.
namespace ringtape {

// y[n, i, j, k] = b[k] + sum over r, s, c of x[n, i stride + r dilation - pad, ..., c] w[k, r, s, c]; outside x is 0.
RT_KERNEL(conv2d_forward, void(View y, View x, View w, View b, Window window));
// dx = the sum of dy w over all places that x contributed to.
RT_KERNEL(conv2d_backward_data, void(View dx, View dy, View w, Window window));
// dw = the sum of dy x over all images and places.
RT_KERNEL(conv2d_backward_weights, void(View dw, View dy, View x, Window window));

// Winograd's algorithm computes 3x3 convolutions of stride 1 with at least 16 channels on both sides with a quarter of the
// multiplications and a rounding error some ten to twenty times as large (docs/performance.md). The error is relative to the largest
// number within 6x6 pixels, also of outputs that do not see it: beside a pixel of 1e8 (a mask of -1e30) they are wrong by 100 (1e24),
// beside an infinity they are NaN; gradients alike. Where exact, no convolution of the process uses it; f64 never does.
// RINGTAPE_EXACT_CONV=1 begins like that: for such images, and for comparing digits with another implementation.
void set_exact_convolutions(bool exact);
bool exact_convolutions();

}  // namespace ringtape
