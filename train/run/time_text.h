#pragma once
#include <string>

namespace ringtape {

// Now, as strftime formats it.
std::string local_time_text(const char* format);
std::string utc_time_text(const char* format);

}  // namespace ringtape
