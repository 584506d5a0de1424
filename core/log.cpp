#include "core/log.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
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

// Whether somebody reads standard error: then it takes a line at once, or soon. Who did not is not waited for again.
static bool is_read() {
  static bool patient = true;
  constexpr int kPatience = 1000;  // milliseconds
  pollfd error{STDERR_FILENO, POLLOUT, 0};
  int ready;
  do ready = ::poll(&error, 1, patient ? kPatience : 0);
  while (ready < 0 && errno == EINTR);
  return patient = ready == 1;
}

void log_parts(LogLevel level, TextParts parts) {
  if (level > log_level()) return;
  const std::string line = printable(joined(parts), "\n  ");
  const std::lock_guard lock(mutex);
  if (is_read()) std::fprintf(stderr, "%s\n", line.c_str());
  if (sink) sink(line);
}

}  // namespace ringtape
