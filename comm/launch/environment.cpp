#include "comm/launch/environment.h"

#include <unistd.h>

#include <filesystem>
#include <map>

#include "core/check.h"
#include "core/env.h"

namespace ringtape::comm {

std::vector<std::string> rank_environment(const Launch& launch, const RankPlace& place) {
  const int rank = launch.first_rank() + place.local_rank, size = launch.ranks();
  const std::string& address = launch.master_addr;
  const std::string host = address.find(':') == std::string::npos ? address : concat("[", address, "]");  // IPv6
  std::map<std::string, std::string> set = {
      {"RANK", text(rank)},
      {"LOCAL_RANK", text(place.local_rank)},
      {"WORLD_SIZE", text(size)},
      {"LOCAL_WORLD_SIZE", text(launch.local_size)},
      {"GROUP_RANK", text(launch.node)},
      {"MASTER_ADDR", address},
      {"MASTER_PORT", text(place.port)},
      {"RINGTAPE_STORE", concat(host, ":", place.port)},
      {"RINGTAPE_TOKEN", launch.token},
      {"RINGTAPE_RESTART", text(place.attempt)},
  };
  if (env::threads() == 0) set["RINGTAPE_THREADS"] = text(place.threads);
  // The variables of a launcher that started this process are not for its ranks.
  set["RINGTAPE_PROGRESS"] = place.bar >= 0 ? text(place.bar) : "";
  set["RINGTAPE_RANK_LOG"] = place.log.empty() ? "" : std::filesystem::absolute(place.log).string();
  std::vector<std::string> out;
  for (char** variable = ::environ; *variable; ++variable) {
    const std::string entry = *variable;
    if (!set.count(entry.substr(0, entry.find('=')))) out.push_back(entry);
  }
  for (const auto& [name, value] : set)
    if (!value.empty()) out.push_back(concat(name, "=", value));
  return out;
}

}  // namespace ringtape::comm
