#include "train/cli/run_output.h"

#include <cstdio>

namespace ringtape::cli {

void print_line(const std::string& text) {
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

}  // namespace ringtape::cli
