#pragma once
#include <string>
#include <vector>

#include "comm/launch/launch.h"

namespace ringtape::comm {

// What a rank is given: this process's environment with torchrun's variables and ours. `port`: where the job meets; `threads`: of its
// kernels, unless RINGTAPE_THREADS is set.
std::vector<std::string> rank_environment(const Launch& launch, int local_rank, int attempt, int port, int threads);

}  // namespace ringtape::comm
