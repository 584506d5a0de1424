#pragma once
#include "kernels/kernel.h"
#include "kernels/window.h"

// On the CPU: kernels/conv2d.h for images that are normalised first, with the bits of batch_norm_forward. Winograd's
// algorithm normalises the rows that it reads, and no tensor of them is in memory.
namespace ringtape {

// By channel, with a ReLU; without data: none.
struct PixelNorm {
  View mean = {}, var = {}, w = {}, b = {};
  double eps = 0;
};

RT_KERNEL(conv2d_norm_forward, void(View y, View x, PixelNorm of_x, View w, Window window));
RT_KERNEL(conv2d_norm_backward_weights, void(View dw, View dy, View x, PixelNorm of_x, Window window));

}  // namespace ringtape
