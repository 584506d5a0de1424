#pragma once
#include "comm/process_group.h"

namespace ringtape::comm {

// The rows of all ranks' x (N, ...) in an order that is random and the same for the same seed; each rank gets as many
// as it gave. So the statistics of a batch say nothing of which rows were together (shuffled batch normalisation: He et
// al., "Momentum contrast for unsupervised visual representation learning", 2020). unshuffle brings them, or what was
// computed from each, back to where they were. All ranks call with the same seed. Rows go straight to where they belong
// (all_to_all, in messages as long as the longest), gradients back.
//   `rows` is the number of each rank's. Where it is not given the ranks tell each other, and a GPU is waited for.
Tensor shuffle(ProcessGroup& group, const Tensor& x, uint64_t seed, const std::vector<int64_t>& rows = {});
Tensor unshuffle(ProcessGroup& group, const Tensor& x, uint64_t seed, const std::vector<int64_t>& rows = {});

}  // namespace ringtape::comm
