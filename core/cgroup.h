#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace ringtape {

// What the control groups of this process, and those above them, grant it: a container's limits. Of both versions of Linux.
struct Cgroups {
  std::string root = "/sys/fs/cgroup";           // where they are mounted
  std::string membership = "/proc/self/cgroup";  // which are this process's

  std::optional<double> cpus() const;        // seconds of CPU time a second; nothing: no limit
  std::optional<int64_t> processes() const;  // with threads; nothing: no limit
};

int allowed_cpus();               // those that this process may run on, whatever time it has on them
std::string allowed_cpus_text();  // which they are: "0-3,8"
int usable_cpus();                // as many as it has time for, rounded up: at least 1, at most those

}  // namespace ringtape
