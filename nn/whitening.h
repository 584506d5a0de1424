#pragma once
#include "core/tensor.h"

namespace ringtape::nn {

// Weights (2 n, side, side, C), n = side^2 C, of a convolution that whitens the patches of images (N, H, W, C), f32:
// its first n outputs have no correlation and, but for `eps`, a mean square of 1; the others are their negatives. They
// are the eigenvectors v of the patches' second moments, by descending eigenvalue l: v / sqrt(l + eps). Computed on
// cpu:0, where the images must be; the same bytes for any number of threads.
Tensor whitening_filters(const Tensor& images, int64_t side, double eps = 5e-4);

}  // namespace ringtape::nn
