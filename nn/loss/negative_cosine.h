#pragma once
#include "core/tensor.h"

namespace ringtape::nn {

// The loss of SimSiam (Chen and He, "Exploring simple Siamese representation learning", 2021) and, up to a factor, of
// BYOL, for predictions p and targets z (n, D):
//   L = - mean_i  p_i . z_i / (max(||p_i||, 1e-8) max(||z_i||, 1e-8)),  in [-1, 1]
// Only p gets a gradient. -> (), f32 (f64 for f64). Errors: ShapeError, DTypeError, DeviceError.
Tensor negative_cosine(const Tensor& p, const Tensor& z);

}  // namespace ringtape::nn
