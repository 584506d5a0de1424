#pragma once
#include "comm/process_group.h"

// Collectives with gradients. What backward() sums up is the gradient of the sum of all ranks'
// losses. Every rank must record and go back through the same of them in the same order; the group
// outlives the graph. x is contiguous. Errors as of ProcessGroup.
namespace ringtape::comm {

Tensor all_reduce(ProcessGroup& group, const Tensor& x);      // the sum of the ranks' x
Tensor all_gather(ProcessGroup& group, const Tensor& x);      // (N, ...) -> (size N, ...): the ranks' x, rank by rank
// (size N, ...) -> (N, ...): this rank's part of the sum of the ranks' x.
Tensor reduce_scatter(ProcessGroup& group, const Tensor& x);

}  // namespace ringtape::comm
