#pragma once
#include <string>

namespace ringtape {

// Writes a message of a rank other than 0: to its own log if a launcher keeps one (RINGTAPE_RANK_LOG), else nowhere;
// with RINGTAPE_LOG=debug always to standard error.
void rank_log(const std::string& line);

}  // namespace ringtape
