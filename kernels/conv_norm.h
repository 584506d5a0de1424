#pragma once
#include "core/tensor.h"
#include "kernels/batch_norm.h"
#include "kernels/conv2d.h"

// Convolutions with the batch normalisation before and after them, as in a residual block: what lies between is not
// written to memory where one kernel can do both (fuses_convolutions), else these are the calls of kernels/conv2d.h
// and kernels/batch_norm.h one after the other. Layouts and dtypes are those of both; convolutions have one group and
// no bias. What is fused rounds the same numbers in the same places; only sums per channel are added in another order.
namespace ringtape {

// An image: relu((raw - mean) w / sqrt(var + eps) + b). Without mean: raw as it is.
struct NormOperand {
  Tensor raw, mean = {}, var = {}, w = {}, b = {};
  double eps = 0;
};

// The gradient of raw by dz, that of (raw - mean) w / sqrt(var + eps) + b, with mean and var those of raw, whose
// gradients of b and w are db and dw: see batch_norm_backward.
struct NormGradient {
  Tensor dz, raw, mean, var, w, db, dw;
  double eps = 0;
};

// y = the convolution of x by w; mean and var: those of y, which update `running`.
void conv_norm_forward(const Tensor& y, const Tensor& mean, const Tensor& var, const NormOperand& x, const Tensor& w,
                       const Window& window, const RunningUpdate& running);

// dx: the gradient by dy of x's normalisation, before its ReLU: 0 where x is not above 0. db and dw are its sums, as of
// batch_norm_backward_sums. Of a plain x: its gradient + skip, which may be undefined; db and dw are not used.
void conv_norm_backward_data(const Tensor& dx, const Tensor& db, const Tensor& dw, const NormGradient& dy,
                             const Tensor& w, const NormOperand& x, const Tensor& skip, const Window& window);

// dw, of w's dtype or f32.
void conv_norm_backward_weights(const Tensor& dw, const NormGradient& dy, const NormOperand& x, const Window& window);

// Whether those of 16-bit images with c channels, to k channels, are fused: on GPUs with tensor cores that do not use
// cuDNN, of multiples of 32 channels. set_fused_convolutions(false) turns it off for the whole process, true turns it
// on beside cuDNN, too. Empty and misaligned tensors are not fused.
bool fuses_convolutions(Device device, DType dtype, int64_t c, int64_t k);
void set_fused_convolutions(bool fused);

namespace cuda {  // whether it has been done; false, without any effect, if these operands cannot be fused
constexpr int64_t kFusedChannels = 32;                   // a multiple of
[[gnu::weak]] bool fuses_convolutions(int gpu);  // unless told otherwise
[[gnu::weak]] bool fused_forward(View y, View mean, View var, const NormOperand& x, View w, const Window& window,
                                 const RunningUpdate& running);
[[gnu::weak]] bool fused_backward_data(View dx, View db, View dw, const NormGradient& dy, View w, const NormOperand& x,
                                       View skip, const Window& window);
[[gnu::weak]] bool fused_backward_weights(View dw, const NormGradient& dy, const NormOperand& x, const Window& window);
}  // namespace cuda

}  // namespace ringtape
