#pragma once
#include "core/tensor.h"

namespace ringtape::comm {
class ProcessGroup;
}

namespace ringtape::nn {

struct SinkhornOptions {
  double epsilon = 0.05;  // entropy of the codes: smaller is sharper
  int iterations = 3;
};

// Codes of SwAV (Caron et al., "Unsupervised learning of visual features by contrasting cluster assignments", 2020) for
// scores (n, K) of rows against prototypes: exp(scores / epsilon), alternately normalised so that all prototypes get
// equal shares of the batch and each row sums to 1 (Sinkhorn and Knopp). Computed in logarithms, so that no finite
// score overflows and no row vanishes. Without gradient. -> (n, K), f32 (f64 for f64); rows sum to 1. With a group,
// prototypes are balanced over all ranks' rows, whose numbers may differ. `queue` (M, K) has the scores of earlier
// rows: they take part in the balance but get no codes. It is the same on all ranks and counts once: each rank
// processes a part. Errors: ShapeError, UsageError for an epsilon or iterations not above 0, and those of ProcessGroup.
Tensor sinkhorn(const Tensor& scores, const SinkhornOptions& options = {}, comm::ProcessGroup* group = nullptr,
                const Tensor& queue = {});

// The swapped prediction of SwAV for the scores (n, K) of V crops. The first H crops, those of full size, have codes
// (n, K):
//   l(s, q) = - mean over rows of  sum_k q_k log softmax(s / temperature)_k
//   L = 1 / (H (V - 1))  sum_{i < H} sum_{v != i} l(s_v, q_i)
// Codes get no gradient. ln K is the loss of a collapsed model. -> (), f32 (f64 for f64).
// Errors: ShapeError, DTypeError, DeviceError, UsageError for a temperature not above 0.
Tensor swav_loss(const Tensors& scores, const Tensors& codes, double temperature);

}  // namespace ringtape::nn
