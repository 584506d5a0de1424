#include "train/run/process_memory.h"

#include <fstream>
#include <string>

namespace ringtape {

int64_t peak_process_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (int64_t kib = 0; word == "VmHWM:" && status >> kib) return kib * 1024;
  return 0;
}

}  // namespace ringtape
