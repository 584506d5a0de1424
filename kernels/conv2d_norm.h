#pragma once
#include "kernels/conv2d.h"

// Convolutions of images that are normalised first, with the bits of batch_norm_forward and kernels/conv2d.h.
// Winograd's algorithm normalises the rows that it reads, and no tensor of them is in memory. CPU only.
namespace ringtape {

// By channel, with a ReLU.
struct PixelNorm {
  View mean = {}, var = {}, w = {}, b = {};
  double eps = 0;
};

RT_KERNEL(conv2d_norm_forward, void(View y, View x, PixelNorm of_x, View w, Window window));
RT_KERNEL(conv2d_norm_backward_weights, void(View dw, View dy, View x, PixelNorm of_x, Window window));

}  // namespace ringtape
