#pragma once
#include <string>

namespace ringtape {

// The current time, formatted by strftime.
std::string local_time_text(const char* format);
std::string utc_time_text(const char* format);

std::string duration_text(double seconds);  // in its two largest units: "3 h 20 min"

}  // namespace ringtape
