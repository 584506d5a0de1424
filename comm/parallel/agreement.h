#pragma once
#include <string>

#include "comm/process_group.h"

namespace ringtape::comm {

// Returns if all ranks give the same lines; else throws CommError on every rank, with the first line in which a rank
// differs from rank 0. A collective; cheap if all agree, and does nothing in a group of one. `what`: such as "the
// settings".
void check_same(ProcessGroup& group, const std::string& what, const std::string& lines);

// The text of rank `root`, on all ranks. A collective.
std::string broadcast_text(ProcessGroup& group, const std::string& text, int root);

}  // namespace ringtape::comm
