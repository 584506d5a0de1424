#pragma once
#include <string>

namespace ringtape {

// A line that a rank other than 0 has to say of itself: to its own log where a launcher keeps one (RINGTAPE_RANK_LOG),
// else nowhere; with RINGTAPE_LOG=debug to standard error, whoever started it.
void rank_log(const std::string& line);

}  // namespace ringtape
