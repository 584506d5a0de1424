#include "comm/launch/cores.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <tuple>

#include "core/check.h"
#include "core/part.h"

namespace ringtape::comm {

static int topology(int cpu, const char* name) {
  std::ifstream file(concat("/sys/devices/system/cpu/cpu", cpu, "/topology/", name));
  int value = 0;
  file >> value;
  return value;
}

std::vector<int> usable_cores() {
  cpu_set_t set;
  std::vector<std::tuple<int, int, int>> places;
  if (::sched_getaffinity(0, sizeof set, &set) == 0)
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &set))
        places.emplace_back(topology(cpu, "physical_package_id"), topology(cpu, "core_id"), cpu);
  std::sort(places.begin(), places.end());
  std::vector<int> out;
  for (const auto& place : places) out.push_back(std::get<2>(place));
  return out;
}

std::vector<int> divide_threads(int cpus, int ranks) {
  std::vector<int> out;
  for (int r = 0; r < ranks; ++r) out.push_back(std::max(1, int(part_of(cpus, ranks, r).size())));
  return out;
}

std::vector<std::vector<int>> divide_cores(const std::vector<int>& cores, int ranks) {
  std::vector<std::vector<int>> out(static_cast<size_t>(ranks));
  if (cores.size() < size_t(ranks)) return out;
  for (int r = 0; r < ranks; ++r) {
    const Part part = part_of(int64_t(cores.size()), ranks, r);
    out[size_t(r)].assign(cores.begin() + part.begin, cores.begin() + part.end);
  }
  return out;
}

}  // namespace ringtape::comm
