#pragma once
#include "core/tensor.h"

namespace ringtape::comm {
class ProcessGroup;
}

namespace ringtape::nn {

// The decoupled contrastive loss (Yeh et al., "Decoupled contrastive learning", 2022): SimCLR's loss without the
// positive pair in the denominator. For two views' embeddings z (n, D), not yet normalised, with u = z / ||z|| and S =
// u u^T / temperature over all 2 n rows:
//   L = mean over the 2 n rows of  logsumexp(S without the row itself and without its other view) - S[row, other view]
// With a group the candidates are the embeddings of all W ranks, 2 W n - 2 per row; the rows are this rank's. Ranks
// must have equal numbers of rows (else CommError). ln(2 W n - 2) is the loss of collapsed embeddings. -> (), f32 (f64
// for f64). Errors: ShapeError, DTypeError, DeviceError, UsageError for a temperature not above 0 and for a single
// image.
Tensor dcl_loss(const Tensor& z0, const Tensor& z1, double temperature, comm::ProcessGroup* group = nullptr);

}  // namespace ringtape::nn
