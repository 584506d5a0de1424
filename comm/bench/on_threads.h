#pragma once
#include <functional>
#include <string_view>
#include <vector>

#include "comm/transport.h"

// Ranks for measuring collectives.
namespace ringtape::comm {

// Where a rank of a machine uses this transport: on the CPU, or on one of its GPUs in turn. Throws DeviceError if there
// is none, UsageError as find_transport.
Device device_for(std::string_view transport, int local_rank);

// Calls f on each of `ranks` threads, with what its rank needs to find the others. Throws the exception of the first
// rank that failed.
void run_on_threads(int ranks, const std::function<void(Context)>& f);

// The same with the transport of each rank, which gets its part of the threads of kernels.
void run_on_threads(int ranks, std::string_view transport, const std::function<void(Transport&)>& f);

}  // namespace ringtape::comm
