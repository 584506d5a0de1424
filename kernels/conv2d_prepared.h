#pragma once
#include "core/tensor.h"
#include "kernels/conv2d.h"

// Convolutions for inference: the weights never change, so they are brought once into the form in which products read
// them, and a bias, a residual and a ReLU are part of the convolution. CPU only.
namespace ringtape {

// The weights of a convolution of images of one size, made by prepare_conv2d. Immutable: threads may share it.
struct PreparedConv {
  DType dtype;                   // of x, y and the residual
  Shape image, weights, output;  // (H, W, C), (K, R, S, C / groups), (Ho, Wo, K)
  Window window;
  Tensor w, b;
};

// w (K, R, S, C / groups) and b (K), or without data for none, are f32 and contiguous, on a CPU; images are (H, W, C)
// of f32, bf16 or f16. Throws ShapeError, DTypeError or DeviceError for anything else.
PreparedConv prepare_conv2d(View w, View b, Window window, const Shape& image, DType dtype);

// y (N, Ho, Wo, K) = conv(x, w) + b + residual, with `relu` max(0, that); x (N, H, W, C); the residual is as y, or has
// no data for none, and may be y itself. All are contiguous and of conv.dtype; else a ShapeError, DTypeError or
// DeviceError. Bytes do not depend on the number of threads, nor an image's on the others. Once warm, it asks the
// system for no memory.
void conv2d_prepared(View y, View x, const PreparedConv& conv, View residual, bool relu);

}  // namespace ringtape
