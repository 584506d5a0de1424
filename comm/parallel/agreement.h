#pragma once
#include <string>

#include "comm/process_group.h"

namespace ringtape::comm {

// Returns if all ranks give the same lines; else throws CommError on every rank: the first line that one of them has
// otherwise than rank 0. A collective, cheap where all agree, and nothing for a group of one. `what`: "the settings".
void check_same(ProcessGroup& group, const std::string& what, const std::string& lines);

// What rank `root` has, on all ranks. A collective.
std::string broadcast_text(ProcessGroup& group, const std::string& text, int root);

}  // namespace ringtape::comm
