#pragma once
#include <functional>
#include <string>

#include "core/text.h"

namespace ringtape {

enum class LogLevel : uint8_t { error, warn, info, debug };

LogLevel log_level();  // RINGTAPE_LOG

// A second destination of lines besides standard error, such as a run's train.log; empty: none. Thread-safe.
void set_log_sink(std::function<void(const std::string& line)> sink);

void log_parts(LogLevel level, TextParts parts);
template <class... Parts> [[gnu::always_inline]] inline void log(LogLevel level, const Parts&... parts) {
  log_parts(level, {parts...});
}
template <class... Parts> [[gnu::always_inline]] inline void log_info(const Parts&... parts) {
  log(LogLevel::info, parts...);
}
template <class... Parts> [[gnu::always_inline]] inline void log_warn(const Parts&... parts) {
  log(LogLevel::warn, "warning: ", parts...);
}

}  // namespace ringtape
