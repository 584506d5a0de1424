// What launchers say in the environment: a line "NAME=VALUE" for each variable.
#include <map>

#include "comm/job/place.h"
#include "tests/fuzz/target.h"

using namespace ringtape;
using namespace ringtape::test;

RT_FUZZ_TARGET(input) {
  std::map<std::string, std::string, std::less<>> variables;
  while (!input.empty()) {
    const std::string_view line = next_line(input), name = line.substr(0, line.find('='));
    variables.emplace(name, line.substr(std::min(line.size(), name.size() + 1)));
  }
  read_or_refuse([&] {
    const auto place = comm::place_of([&](const char* name) -> std::optional<std::string> {
      const auto found = variables.find(std::string_view(name));
      return found == variables.end() || found->second.empty() ? std::nullopt : std::optional(found->second);
    });
    if (!place) return;
    require(place->rank >= 0 && place->rank < place->size && place->local_rank >= 0 && place->local_size >= 1);
    require(place->local_rank < place->local_size && place->port >= 0 && place->port <= 65535);
  });
}
