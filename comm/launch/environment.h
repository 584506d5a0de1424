#pragma once
#include <string>
#include <vector>

#include "comm/launch/launch.h"

namespace ringtape::comm {

struct RankPlace {
  int local_rank = 0, attempt = 0;
  int port = 0;       // port where the job meets
  int threads = 1;    // of its kernels, unless RINGTAPE_THREADS is set
  int bar = -1;       // descriptor of the pipe that its progress bar is written to; -1: none
  std::string log{};  // file of its output; empty: none
};

// The environment of a rank: this process's environment with the variables of torchrun and of ringtape.
std::vector<std::string> rank_environment(const Launch& launch, const RankPlace& place);

}  // namespace ringtape::comm
