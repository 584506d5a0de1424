#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace ringtape {

// What the control groups of this process and their parents grant it, such as a container's limits. Supports versions 1
// and 2 of Linux cgroups.
struct Cgroups {
  std::string root = "/sys/fs/cgroup";           // mount point
  std::string membership = "/proc/self/cgroup";  // list of this process's groups

  std::optional<double> cpus() const;        // seconds of CPU time per second; nullopt: no limit
  std::optional<int64_t> processes() const;  // including threads; nullopt: no limit
  std::optional<int64_t> memory() const;     // bytes; nullopt: no limit
  // How many processes of its own group the kernel has killed because memory ran out; nullopt: not known.
  std::optional<int64_t> oom_kills() const;
};

int allowed_cpus();               // number of CPUs this process may run on, ignoring limits of CPU time
std::string allowed_cpus_text();  // the same as a list: "0-3,8"
int usable_cpus();                // CPUs' worth of time it may use, rounded up: in [1, allowed_cpus()]

}  // namespace ringtape
