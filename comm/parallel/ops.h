#pragma once
#include "comm/process_group.h"

// Collectives with gradients. backward() computes the gradient of the sum of all ranks' losses. Every rank must record
// the same collectives, and run backward through them, in the same order. The group must outlive the graph. x is
// contiguous. Errors as of ProcessGroup.
namespace ringtape::comm {

Tensor all_reduce(ProcessGroup& group, const Tensor& x);  // the sum of the ranks' x
Tensor all_gather(ProcessGroup& group, const Tensor& x);  // (N, ...) -> (size N, ...): the ranks' x, rank by rank
// (size N, ...) -> (N, ...): this rank's part of the sum of all ranks' x.
Tensor reduce_scatter(ProcessGroup& group, const Tensor& x);

}  // namespace ringtape::comm
