#pragma once
#include "autograd/ops.h"
#include "comm/process_group.h"

namespace ringtape::comm {

// batch_norm of this rank's rows of the group's batch: mean, variance and running statistics are those of all ranks'
// rows, with the same bits on every rank. Ranks may have different numbers of rows, even 0, but there must be more than
// one in total; otherwise every rank gets the error. Every rank must record the same calls, run backward through them
// in the same order, and recompute the same checkpointed sections. The group must outlive the graph. Errors as of
// batch_norm and ProcessGroup.
//   Forward sends 2 C + 1 numbers a rank (all_gather), backward 2 C (all_reduce). These small messages wait for earlier
// large ones of the same group, such as buckets of gradients; a separate group, made by split(), avoids this.
//   dx is the gradient of the sum of all ranks' losses. If the losses of ranks have different weights, as means over
// different numbers of rows, weight the loss before backward(), not the gradients after it. dw and db are of this
// rank's rows only: add them up over the ranks together with the other gradients.
Tensor sync_batch_norm(ProcessGroup& group, const Tensor& x, const Tensor& w, const Tensor& b,
                       const RunningStatistics& running, BatchNormOptions options = {}, Activation f = Activation::none,
                       const Tensor& residual = {});

}  // namespace ringtape::comm
