#pragma once
#include <string>
#include <vector>

#include "comm/launch/launch.h"

namespace ringtape::comm {

struct RankPlace {
  int local_rank = 0, attempt = 0;
  int port = 0;       // where the job meets
  int threads = 1;    // of its kernels, unless RINGTAPE_THREADS is set
  int bar = -1;       // descriptor of the pipe that its progress bar is written to; -1: none
  std::string log{};  // file of its output; empty: none
};

// What a rank is given: this process's environment with torchrun's variables and ours.
std::vector<std::string> rank_environment(const Launch& launch, const RankPlace& place);

}  // namespace ringtape::comm
