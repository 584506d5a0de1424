#pragma once
#include "comm/process_group.h"

namespace ringtape::comm {

// The rows of all ranks' x (N, ...) in a random order that depends only on the seed; each rank gets as many rows as it
// gave. So the statistics of a batch do not reveal which rows were together (shuffled batch normalisation: He et al.,
// "Momentum contrast for unsupervised visual representation learning", 2020). unshuffle moves the rows, or what was
// computed from each, back to their places. All ranks call with the same seed. Rows are sent directly to their new
// ranks (all_to_all; all messages have the length of the longest), gradients back.
//   `rows` is the number of rows of each rank. If it is not given, the ranks exchange it, and the host waits for the
// GPU.
Tensor shuffle(ProcessGroup& group, const Tensor& x, uint64_t seed, const std::vector<int64_t>& rows = {});
Tensor unshuffle(ProcessGroup& group, const Tensor& x, uint64_t seed, const std::vector<int64_t>& rows = {});

}  // namespace ringtape::comm
