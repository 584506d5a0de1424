#include "kernels/conv2d_norm.h"

#include "core/tensor.h"
#include "kernels/batch_norm.h"
#include "kernels/copy.h"
#include "kernels/cpu/conv/conv2d.h"
#include "kernels/cpu/vector/isa.h"

RT_ISA_BEGIN

namespace {

Tensor normalized(const View& x, const PixelNorm& n) {
  const Tensor y(x.shape(), x.dtype, x.device);
  batch_norm_forward(y, {}, x, {}, n.mean, n.var, n.w, n.b, n.eps, Activation::relu);
  return y;
}

// Which algorithm normalises what it reads; direct: none.
Algorithm fused_algorithm(const ConvSizes& z, const Window& p, DType of_x) {
  const Algorithm algorithm = algorithm_for(z, p, of_x);
  const bool fuses = algorithm == Algorithm::winograd || algorithm == Algorithm::winograd_bf16 ||
                     (algorithm == Algorithm::amx && amx_normalizes(z, p));
  return fuses ? algorithm : Algorithm::direct;
}

}  // namespace

void conv2d_norm_forward(View y, View x, PixelNorm of_x, View w, Window p) {
  switch (fused_algorithm({y, x, w}, p, x.dtype)) {
    case Algorithm::winograd: return winograd_forward(y, x, w, {}, p, of_x);
    case Algorithm::winograd_bf16: return winograd_bf16_forward(y, x, w, {}, p, of_x);
    case Algorithm::amx: return amx_forward(y, x, w, {}, p, of_x);
    default: return conv2d_forward(y, normalized(x, of_x), w, {}, p);
  }
}

void conv2d_norm_backward_weights(View dw, View dy, View x, PixelNorm of_x, Window p) {
  const Algorithm algorithm = fused_algorithm({dy, x, dw}, p, x.dtype);
  if (algorithm == Algorithm::direct) return conv2d_backward_weights(dw, dy, normalized(x, of_x), p);
  if (algorithm == Algorithm::amx) return amx_backward_weights(dw, dy, x, p, of_x);
  if (dw.dtype != x.dtype) {
    const Tensor narrow(dw.shape(), x.dtype, dw.device);
    conv2d_norm_backward_weights(narrow, dy, x, of_x, p);
    return copy(dw, narrow);
  }
  algorithm == Algorithm::winograd ? winograd_backward_weights(dw, dy, x, p, of_x)
                                   : winograd_bf16_backward_weights(dw, dy, x, p, of_x);
}

RT_ISA_END
