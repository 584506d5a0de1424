#pragma once
#include <functional>
#include <vector>

#include "comm/transport.h"

// Ranks for measuring collectives.
namespace ringtape::comm {

// Calls f on each of `ranks` threads, with what its rank needs to find the others. Throws the exception of the first
// rank that failed.
void run_on_threads(int ranks, const std::function<void(Context)>& f);

// The same with transports between threads; each rank gets its part of the threads of kernels.
void run_on_threads(int ranks, const std::function<void(Transport&)>& f);

}  // namespace ringtape::comm
