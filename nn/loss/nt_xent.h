#pragma once
#include "core/tensor.h"

namespace ringtape::comm {
class ProcessGroup;
}

namespace ringtape::nn {

// The normalised, temperature-scaled cross-entropy of SimCLR (Chen et al., "A simple framework for contrastive learning
// of visual representations", 2020) for two views' embeddings z (n, D), not yet normalised, with u = z / ||z|| and S =
// u u^T / temperature:
//   L = mean over the 2 n rows of  logsumexp(S without the row itself) - S[row, other view]
// With a group the candidates are the embeddings of all W ranks, 2 W n - 1 per row; the rows are this rank's. Ranks
// must have equal numbers of rows (else CommError). The mean of the ranks' losses is then that of the whole batch,
// including gradients (comm/parallel/ops.h). ln(2 W n - 1) is the loss of collapsed embeddings. -> (), f32 (f64 for
// f64). Errors: ShapeError, DTypeError, DeviceError, UsageError for a temperature not above 0.
Tensor nt_xent_loss(const Tensor& z0, const Tensor& z1, double temperature, comm::ProcessGroup* group = nullptr);

}  // namespace ringtape::nn
