#pragma once
#include <string>
#include <vector>

#include "comm/process_group.h"
#include "train/evaluation/metrics.h"

// What the ranks of a training tell each other besides gradients; each is a collective, which alone does nothing.
namespace ringtape {

Tally of_all(comm::ProcessGroup& group, const Tally& own);  // what they have counted together
bool any_of(comm::ProcessGroup& group, bool wish);           // whether it is true on one of them
double max_over_ranks(comm::ProcessGroup& group, double own);
std::vector<std::string> gather_texts(comm::ProcessGroup& group, const std::string& own);  // by rank
std::vector<int64_t> of_each(comm::ProcessGroup& group, int64_t own);  // by rank

// Rank 0's values on all of them; throws CommError if they are not the same then, which would
// be an error of a transport or a device.
void replicate(comm::ProcessGroup& group, const std::vector<Tensor>& tensors);

}  // namespace ringtape
