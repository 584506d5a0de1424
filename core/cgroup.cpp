#include "core/cgroup.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <vector>

#include "core/parse.h"
#include "core/text.h"

namespace ringtape {
namespace {

// The first two words of a file; empty if missing.
struct Words {
  std::string first, second;
  explicit Words(const std::string& path) { std::ifstream(path) >> first >> second; }
};

template <class T> void take_less(std::optional<T>& least, std::optional<T> other) {
  if (other && (!least || *other < *least)) least = other;
}

// Calls f(folder) for each group of this process that has the controller, and then for its parents. In a container the
// path may be the host's and not visible; then the root is the container's own group.
template <class F> void for_each_group(const Cgroups& where, const std::string& controller, F&& f) {
  std::ifstream file(where.membership);
  for (std::string line; std::getline(file, line);) {  // "0::/a/b", or "4:cpu,cpuacct:/a/b" in version 1
    const size_t one = line.find(':'), two = line.find(':', one + 1);
    if (one == std::string::npos || two == std::string::npos) continue;
    const std::string controllers = line.substr(one + 1, two - one - 1);
    std::vector<std::string> mounts = {where.root, where.root + "/unified"};
    if (!controllers.empty()) {
      if (concat(",", controllers, ",").find(concat(",", controller, ",")) == std::string::npos) continue;
      mounts = {concat(where.root, "/", controllers), concat(where.root, "/", controller)};
    }
    for (const std::string& mount : mounts)
      for (std::string path = line.substr(two + 1);; path.erase(path.rfind('/'))) {
        while (path.ends_with('/')) path.pop_back();
        f(mount + path);
        if (path.find('/') == std::string::npos) break;
      }
  }
}

std::optional<double> share(std::optional<int64_t> quota, std::optional<int64_t> period) {
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;  // "max", or -1 in version 1
  return double(*quota) / double(*period);
}

}  // namespace

std::optional<double> Cgroups::cpus() const {
  std::optional<double> least;
  for_each_group(*this, "cpu", [&](const std::string& group) {
    const Words max(group + "/cpu.max");
    take_less(least, share(parse_number<int64_t>(max.first), parse_number<int64_t>(max.second)));
    take_less(least, share(parse_number<int64_t>(Words(group + "/cpu.cfs_quota_us").first),
                           parse_number<int64_t>(Words(group + "/cpu.cfs_period_us").first)));
  });
  return least;
}

std::optional<int64_t> Cgroups::processes() const {
  std::optional<int64_t> least;
  for_each_group(*this, "pids", [&](const std::string& group) {
    take_less(least, parse_number<int64_t>(Words(group + "/pids.max").first));
  });
  return least;
}

std::optional<int64_t> Cgroups::memory() const {
  constexpr int64_t kUnlimited = int64_t(1) << 60;  // version 1 says so by the largest number of whole pages
  std::optional<int64_t> least;
  for_each_group(*this, "memory", [&](const std::string& group) {
    for (const char* file : {"/memory.max", "/memory.limit_in_bytes"})
      if (const auto limit = parse_number<int64_t>(Words(group + file).first); limit && *limit < kUnlimited)
        take_less(least, limit);
  });
  return least;
}

std::optional<int64_t> Cgroups::oom_kills() const {
  std::optional<int64_t> count;
  for_each_group(*this, "memory", [&](const std::string& group) {
    for (const char* name : {"/memory.events", "/memory.oom_control"}) {
      if (count) return;  // that of the group itself, which counts kills for a parent's limit, too
      std::ifstream file(group + name);
      for (std::string key, value; !count && file >> key >> value;)
        if (key == "oom_kill") count = parse_number<int64_t>(value);
    }
  });
  return count;
}

int allowed_cpus() {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

std::string allowed_cpus_text() {
  cpu_set_t set;
  std::string out;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return "?";
  for (int begin = 0; begin < CPU_SETSIZE; ++begin) {
    if (!CPU_ISSET(begin, &set)) continue;
    int end = begin;
    while (end + 1 < CPU_SETSIZE && CPU_ISSET(end + 1, &set)) ++end;
    out += concat(out.empty() ? "" : ",", begin, end > begin ? concat("-", end) : "");
    begin = end;
  }
  return out;
}

int usable_cpus() {
  const int allowed = allowed_cpus();
  const auto quota = Cgroups().cpus();
  return quota ? std::clamp(int(std::ceil(std::min(*quota, 1e6))), 1, allowed) : allowed;
}

}  // namespace ringtape
