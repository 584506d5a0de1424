#pragma once
#include <functional>
#include <vector>

#include "comm/transport.h"

// Ranks for measuring collectives.
namespace ringtape::comm {

// Calls f on each of `ranks` threads, with the transport of its rank. Throws the exception of the first rank that
// failed.
void run_on_threads(int ranks, const std::function<void(comm::Transport&)>& f);

}  // namespace ringtape::comm
