#pragma once
#include <string>
#include <vector>

#include "comm/process_group.h"
#include "train/evaluation/metrics.h"

// Small collectives besides those for gradients. With one rank they return their argument.
namespace ringtape {

Tally of_all(comm::ProcessGroup& group, const Tally& own);  // the sum over ranks
bool any_of(comm::ProcessGroup& group, bool wish);          // whether it is true on any rank
double max_over_ranks(comm::ProcessGroup& group, double own);
std::vector<std::string> gather_texts(comm::ProcessGroup& group, const std::string& own);  // one per rank
std::vector<int64_t> of_each(comm::ProcessGroup& group, int64_t own);                      // one per rank

// Copies rank 0's values to all ranks. Throws CommError if the ranks' values differ afterwards: an error of a transport
// or a device.
void replicate(comm::ProcessGroup& group, const std::vector<Tensor>& tensors);

}  // namespace ringtape
