#pragma once
#include "core/tensor.h"

namespace ringtape::comm {
class ProcessGroup;
}

namespace ringtape::nn {

struct VicregOptions {
  double invariance = 25, variance = 25, covariance = 1;  // weights
  double eps = 1e-4;
};

// VICReg (Bardes, Ponce and LeCun, "VICReg: variance-invariance-covariance regularization", 2022) for two views'
// embeddings (n, D), n > 1, with var and cov over n - 1:
//   s = mean((z0 - z1)^2),  v(z) = mean_d max(0, 1 - sqrt(var_d + eps)),  c(z) = sum_{i != j} cov_ij^2 / D
//   L = invariance s + variance (v(z0) + v(z1)) / 2 + covariance (c(z0) + c(z1))
// With a group, the embeddings of all ranks are gathered, and L is that of the whole batch on each rank. Ranks must
// have equal numbers of rows (else CommError). -> (), f32 (f64 for f64). Errors: ShapeError, DTypeError, DeviceError.
Tensor vicreg_loss(const Tensor& z0, const Tensor& z1, const VicregOptions& options = {},
                   comm::ProcessGroup* group = nullptr);

}  // namespace ringtape::nn
