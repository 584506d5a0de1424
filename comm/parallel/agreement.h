#pragma once
#include <string>
#include <vector>

#include "comm/process_group.h"

namespace ringtape::comm {

// Returns if all ranks give the same lines; else throws CommError on every rank, with the first line in which a rank
// differs from rank 0. A collective; cheap if all agree, and does nothing in a group of one. `what`: such as "the
// settings".
void check_same(ProcessGroup& group, const std::string& what, const std::string& lines);

// The text of rank `root`, on all ranks. A collective.
std::string broadcast_text(ProcessGroup& group, const std::string& text, int root);

// Small collectives besides those for gradients, which do nothing with one rank.
bool any_of(ProcessGroup& group, bool wish);  // whether it is true on any rank
double max_over_ranks(ProcessGroup& group, double own);
std::vector<std::string> gather_texts(ProcessGroup& group, const std::string& own);  // one per rank
std::vector<int64_t> of_each(ProcessGroup& group, int64_t own);                      // one per rank

// Copies the values of rank `root` to all ranks. Throws CommError if the ranks' values differ afterwards: an error of a
// transport or a device.
void replicate(ProcessGroup& group, const std::vector<Tensor>& tensors, int root = 0);

}  // namespace ringtape::comm
