#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace ringtape {

// What a result depends on besides the options: version, machine, compiler, libraries, variables that are
// set.
nlohmann::ordered_json environment(const std::vector<std::string>& command_line);

}  // namespace ringtape
