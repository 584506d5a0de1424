#include "train/run/time_text.h"

#include <algorithm>
#include <cmath>
#include <ctime>

#include "core/text.h"

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

std::string duration_text(double seconds) {
  const int64_t s = std::llround(std::clamp(seconds, 0.0, 1e15)), minutes = (s + 30) / 60, hours = (s + 1800) / 3600;
  const auto two = [](int64_t whole, const char* unit, int64_t rest, const char* smaller) {
    return concat(whole, unit, rest > 0 ? concat(" ", rest, smaller) : "");
  };
  if (s < 60) return concat(s, " s");
  if (minutes < 60) return concat(minutes, " min");
  return hours < 24 ? two(minutes / 60, " h", minutes % 60, " min") : two(hours / 24, " d", hours % 24, " h");
}

}  // namespace ringtape
