#include "core/log.h"

#include <array>
#include <cstdio>
#include <mutex>

#include "core/check.h"
#include "core/env.h"
#include "core/printable.h"

namespace ringtape {

LogLevel log_level() {
  static const LogLevel level = [] {
    constexpr std::array<const char*, 4> names = {"error", "warn", "info", "debug"};
    const std::string& wanted = env::log();
    if (wanted.empty()) return LogLevel::info;
    for (size_t i = 0; i < names.size(); ++i)
      if (wanted == names[i]) return LogLevel(i);
    detail::fail<UsageError>({"RINGTAPE_LOG=", wanted, ": expected one of error warn info debug"});
  }();
  return level;
}

static std::mutex mutex;
static std::function<void(const std::string&)> sink;

void set_log_sink(std::function<void(const std::string&)> to) {
  const std::lock_guard lock(mutex);
  sink = std::move(to);
}

void log_parts(LogLevel level, TextParts parts) {
  if (level > log_level()) return;
  const std::string line = printable(joined(parts), "\n  ");
  const std::lock_guard lock(mutex);
  std::fprintf(stderr, "%s\n", line.c_str());
  if (sink) sink(line);
}

}  // namespace ringtape
