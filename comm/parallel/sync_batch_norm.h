#pragma once
#include "autograd/ops.h"
#include "comm/process_group.h"

namespace ringtape::comm {

// batch_norm of this rank's rows of a batch that the group has: mean and variance are of all ranks' rows, and so are
// the running statistics, with the same bits on every rank. Ranks may have different numbers of rows, or none, as long
// as there is more than one in all; the error where there is not comes on every rank. Every rank must record and go
// back through the same calls in the same order, and call again what it has checkpointed; the group outlives the graph.
// Errors as of batch_norm and ProcessGroup.
//   Forward sends 2 C + 1 numbers a rank (all_gather), backward 2 C (all_reduce). Messages so small wait behind large
// ones that the same group has been given before, such as buckets of gradients; a group of its own, made by split(),
// does not.
//   dx is the gradient of the sum of all ranks' losses. Where ranks' losses do not count alike, as means over different
// numbers of rows, the loss is to be weighted before backward(), not gradients after it. dw and db are of this rank's
// rows: whoever adds up gradients over the ranks adds them up too.
Tensor sync_batch_norm(ProcessGroup& group, const Tensor& x, const Tensor& w, const Tensor& b,
                       const RunningStatistics& running, BatchNormOptions options = {}, Activation f = Activation::none,
                       const Tensor& residual = {});

}  // namespace ringtape::comm
