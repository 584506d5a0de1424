#pragma once
#include <string>
#include <vector>

#include "comm/process_group.h"
#include "train/metrics.h"

// What the ranks of a training tell each other besides gradients; each is a collective. Without a group (null) there is one rank alone.
namespace ringtape {

Tally of_all(comm::ProcessGroup* group, const Tally& own);  // what they have counted together
bool any_of(comm::ProcessGroup* group, bool wish);          // whether it is true on one of them
double most_of(comm::ProcessGroup* group, double own);      // the largest
std::vector<std::string> texts_of(comm::ProcessGroup* group, const std::string& own);  // what each has to say, by rank
std::vector<int64_t> of_each(comm::ProcessGroup& group, int64_t own);

// Rank 0's values on all of them; throws CommError if they are not the same then, which would be an error of a transport or a device.
void replicate(comm::ProcessGroup& group, const std::vector<Tensor>& tensors);

}  // namespace ringtape
