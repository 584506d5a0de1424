#include "train/run/time_text.h"

#include <ctime>

namespace ringtape {

static std::string time_text(const char* format, std::tm* (*convert)(const std::time_t*, std::tm*)) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  convert(&now, &parts);
  char out[32];
  return {out, std::strftime(out, sizeof out, format, &parts)};
}

std::string local_time_text(const char* format) { return time_text(format, localtime_r); }
std::string utc_time_text(const char* format) { return time_text(format, gmtime_r); }

}  // namespace ringtape
