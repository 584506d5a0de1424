#pragma once
#include "core/tensor.h"

namespace ringtape::comm {
class ProcessGroup;
}

namespace ringtape::nn {

struct BarlowTwinsOptions {
  double lambda = 5e-3;  // weight of the off-diagonal terms
  double scale = 1;      // factor of the loss
  // Divides columns by the deviation with n - 1 in the denominator, as lightly did until 2023: then a perfect match
  // gives C_ii = (n - 1) / n, and a constant column NaN. Else by sqrt(variance + 1e-5), as batch normalisation does.
  bool unbiased = false;
  bool exact = false;  // with a group: standardise by mean and variance of all ranks' rows, not only this rank's
};

// Barlow Twins (Zbontar et al., "Self-supervised learning via redundancy reduction", 2021), for two views' embeddings
// (n, D):
//   H = columns of (z - mean) / deviation;  C = H0^T H1 / n, (D, D);
//   L = scale (sum_i (C_ii - 1)^2 + lambda sum_{i != j} C_ij^2)
// With a group, H0^T H1 and n are summed over the ranks, so C is the mean over all rows, and L is the same on all
// ranks. With `exact` it is the loss of the whole batch; else each rank standardises by its own rows. Ranks may have
// different numbers of rows. -> (), f32 (f64 for f64). Errors: ShapeError, DTypeError, DeviceError, and those of
// comm/parallel/ops.h.
Tensor barlow_twins_loss(const Tensor& z0, const Tensor& z1, const BarlowTwinsOptions& options = {},
                         comm::ProcessGroup* group = nullptr);

}  // namespace ringtape::nn
