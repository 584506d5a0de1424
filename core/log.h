#pragma once
#include <functional>
#include <string>

#include "core/text.h"

namespace ringtape {

enum class LogLevel : uint8_t { error, warn, info, debug };

LogLevel log_level();  // RINGTAPE_LOG
void log_line(LogLevel level, const std::string& line);

// A second destination of lines besides standard error, such as a run's train.log; empty: none. Thread-safe.
void set_log_sink(std::function<void(const std::string& line)> sink);

template <class... Parts>
void log(LogLevel level, const Parts&... parts) {
  if (level <= log_level()) log_line(level, concat(parts...));
}
template <class... Parts>
void log_info(const Parts&... parts) { log(LogLevel::info, parts...); }
template <class... Parts>
void log_warn(const Parts&... parts) { log(LogLevel::warn, "warning: ", parts...); }

}  // namespace ringtape
