#pragma once
#include <functional>
#include <string>
#include <vector>

#include "comm/transport.h"

// Ranks to measure collectives with.
namespace ringtape {

// Calls f on each of `ranks` threads, with the transport of its rank. Throws what the first that failed threw.
void run_on_threads(int ranks, const std::function<void(comm::Transport&)>& f);

// Starts the ranks as processes of this executable, with these arguments; they then find themselves in a job. Their exit code.
int run_as_processes(int ranks, const std::vector<std::string>& arguments);

}  // namespace ringtape
