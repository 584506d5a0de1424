#pragma once
#include "core/tensor.h"

namespace ringtape::nn {

// The contrastive loss of MoCo (He et al., "Momentum contrast for unsupervised visual representation learning", 2020):
// queries q and keys k (n, D), not yet normalised, and a bank (M, D) of normalised keys of earlier batches as
// negatives:
//   S_i = (q_i . k_i, q_i . bank_1, ... q_i . bank_M) / temperature,  L = mean_i of  logsumexp(S_i) - S_i0
// Only q gets a gradient. ln(M + 1) is the loss of collapsed embeddings. -> (), f32 (f64 for f64). Errors: ShapeError,
// DTypeError, DeviceError, UsageError for a temperature not above 0.
Tensor memory_bank_loss(const Tensor& q, const Tensor& k, const Tensor& bank, double temperature);

}  // namespace ringtape::nn
