#pragma once
#include <vector>

namespace ringtape::comm {

// The cores on which this process may run; hardware threads of one core are adjacent, and so are cores of one package.
std::vector<int> usable_cores();

// The number of kernel threads of each rank, for a total of `cpus`: as even as possible, at least 1.
std::vector<int> divide_threads(int cpus, int ranks);

// Consecutive cores for each rank, as even as possible; all empty if there are fewer cores than ranks.
std::vector<std::vector<int>> divide_cores(const std::vector<int>& cores, int ranks);

}  // namespace ringtape::comm
