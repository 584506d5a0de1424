#pragma once
#include <functional>
#include <vector>

#include "comm/transport.h"

// Ranks to measure collectives with.
namespace ringtape::comm {

// Calls f on each of `ranks` threads, with the transport of its rank. Throws what the first that failed threw.
void run_on_threads(int ranks, const std::function<void(comm::Transport&)>& f);

}  // namespace ringtape::comm
