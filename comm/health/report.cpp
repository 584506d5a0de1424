#include "comm/health/report.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <thread>

#include "comm/health/activity.h"
#include "core/limits.h"

namespace ringtape::comm {

constexpr Seconds kPatience{3};  // time to wait for the rank that gathers the report

// The rows of all ranks; nullopt if another thread or process gathers them.
static std::optional<std::string> gather_rows(Failure& failure) {
  if (!failure.claim_report()) return std::nullopt;
  const auto peers = failure.peers();
  return peers ? peers->activities() : Activity::process().rows(&failure);
}

constexpr const char *kWaited = " waited ", *kFor = " s for rank ";

static int wake = -1;
static void on_sigquit(int) { (void)!::write(wake, "\1\0\0\0\0\0\0", 8); }

void timed_out(Transport& transport) {
  Failure& failure = *transport.context().failure;
  failure.check();
  std::string cause = concat("rank ", transport.rank(), kWaited, transport.context().timeout.count(), kFor,
                             transport.waiting_on(), " in ", transport.operation(), " over ", transport.name());
  if (const auto rows = gather_rows(failure)) cause += concat("\nthe ranks at that moment:\n", table(*rows));
  else
    for (const Deadline patience(kPatience); !failure.raised() && !patience.passed();)
      std::this_thread::sleep_for(Seconds(0.002));
  failure.raise(cause);
  failure.check();
  throw CommError("unreachable");
}

bool is_timeout(const std::string& cause) {
  const size_t at = cause.find(kWaited);
  return at != cause.npos && cause.find(kFor, at) != cause.npos;
}

void dump_activity(const std::string& path) {
  const std::string text = Activity::process().history();
  std::FILE* const file = path.empty() ? stderr : std::fopen(path.c_str(), "ae");
  if (!file) return;
  std::fputs(text.c_str(), file);
  if (file == stderr) std::fflush(file);
  else std::fclose(file);
}

// A signal handler may do very little: it only wakes a thread.
void dump_activity_on_sigquit(const std::string& path) {
  if (wake >= 0) return;
  wake = ::eventfd(0, EFD_CLOEXEC);
  start_thread("dumps on SIGQUIT", [path, from = wake] {
    for (uint64_t count; ::read(from, &count, sizeof count) == sizeof count;) dump_activity(path);
  }).detach();
  struct sigaction action {};
  action.sa_handler = on_sigquit;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGQUIT, &action, nullptr);
}

}  // namespace ringtape::comm
