#pragma once
#include "core/tensor.h"

namespace ringtape::nn {

// A measure of collapse for embeddings z (n, D), n > 1: the mean over columns of the standard deviation (with n - 1) of
// the normalised rows. About 1 / sqrt(D) for rows in random directions, 0 if all are the same. Without gradient; on the
// device. -> (), f32 (f64 for f64). Errors: ShapeError, DTypeError.
Tensor spread(const Tensor& z);

}  // namespace ringtape::nn
