#pragma once
#include <vector>

namespace ringtape::comm {

// The cores this process may run on, hardware threads of one core side by side, and those of one package.
std::vector<int> usable_cores();

// Threads of each rank's kernels, where there is time for so many CPUs: as even as can be, at least 1.
std::vector<int> divide_threads(int cpus, int ranks);

// A run of them for each rank, as even as can be; empty ones where there are fewer cores than ranks.
std::vector<std::vector<int>> divide_cores(const std::vector<int>& cores, int ranks);

}  // namespace ringtape::comm
