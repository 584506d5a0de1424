#include "train/run/stop.h"

#include <signal.h>
#include <time.h>

#include <iterator>

namespace ringtape {
namespace {

constexpr int kSignals[] = {SIGTERM, SIGINT};
volatile sig_atomic_t requested = 0;
timespec first;
struct sigaction before[std::size(kSignals)];

void restore() {
  for (size_t i = 0; i < std::size(kSignals); ++i) ::sigaction(kSignals[i], &before[i], nullptr);
}

// Calls what may be called in a signal handler alone.
void request(int signal) {
  timespec now;
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  if (!requested) {
    first = now;
    requested = 1;
  } else if (double(now.tv_sec - first.tv_sec) + 1e-9 * double(now.tv_nsec - first.tv_nsec) >= 1) {
    restore();
    ::raise(signal);
  }
}

}  // namespace

StopSignals::StopSignals() {
  requested = 0;
  struct sigaction action {};
  action.sa_handler = request;
  action.sa_flags = SA_RESTART;
  for (const int signal : kSignals) sigaddset(&action.sa_mask, signal);
  for (size_t i = 0; i < std::size(kSignals); ++i) ::sigaction(kSignals[i], &action, &before[i]);
}

StopSignals::~StopSignals() { restore(); }

bool stop_requested() { return requested != 0; }

}  // namespace ringtape
