#pragma once
#include "core/tensor.h"

namespace ringtape::nn {

// How far embeddings z (n, D), n > 1, are from having collapsed: the deviation of each column of the normalised rows, over n - 1, on the
// average. About 1 / sqrt(D) where rows point anywhere, 0 where all are the same. Without gradient; on the device. -> (), f32 (f64 of f64).
// Errors: ShapeError, DTypeError.
Tensor spread(const Tensor& z);

}  // namespace ringtape::nn
