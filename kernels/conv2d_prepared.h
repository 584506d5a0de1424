#pragma once
#include "core/tensor.h"
#include "kernels/bf16_unit.h"
#include "kernels/conv2d.h"

// Convolutions for inference: the weights never change, so they are brought once into the form in which products read
// them, and a bias, a residual and a ReLU are part of the convolution. A fully connected layer is one of 1x1 windows
// and images of one pixel. CPU only.
namespace ringtape {

// plain: the kernels of conv2d.h, one after the other. Those of Winograd by the outputs of a tile.
enum class ConvAlgorithm : uint8_t { plain, direct, winograd_2x2, winograd_4x4 };

// The weights of a convolution of images of one size, made by prepare_conv2d. Immutable: threads may share it.
struct PreparedConv {
  DType dtype;                   // of x, y and the residual
  Shape image, weights, output;  // (H, W, C), (K, R, S, C / groups), (Ho, Wo, K)
  Window window;
  ConvAlgorithm algorithm;  // chosen by these, not by the number of images or threads
  CpuIsa isa;               // the instruction set and unit that it is for
  Bf16Choice unit;
  Tensor w, b;  // as the algorithm reads them
};

// w (K, R, S, C / groups) and b (K), or without data for none, are f32 and contiguous, on a CPU; images are (H, W, C)
// of f32, bf16 or f16. Throws ShapeError, DTypeError or DeviceError for anything else.
PreparedConv prepare_conv2d(View w, View b, Window window, const Shape& image, DType dtype);

// y (N, Ho, Wo, K) = conv(x, w) + b + residual, with `relu` max(0, that); x (N, H, W, C); the residual is as y, or has
// no data for none, and may be y itself. All are contiguous and of conv.dtype; else a ShapeError, DTypeError or
// DeviceError. Bytes do not depend on the number of threads, nor an image's on the others. Once warm, it asks the
// system for no memory.
void conv2d_prepared(View y, View x, const PreparedConv& conv, View residual, bool relu);

// The parts of them that depend on the instruction set: `w` as above becomes conv.w of conv.algorithm, which it chooses
// if that is `plain`; and the convolution by any algorithm but that.
RT_KERNEL(pack_conv2d, void(View w, PreparedConv* conv));
RT_KERNEL(run_prepared_conv2d, void(View y, View x, const PreparedConv& conv, View residual, bool relu));

}  // namespace ringtape
