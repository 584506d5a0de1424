#include "train/run/stop.h"

#include <signal.h>

#include <iterator>

namespace ringtape {
namespace {

constexpr int kSignals[] = {SIGTERM, SIGINT};
volatile sig_atomic_t requested = 0;
struct sigaction before[std::size(kSignals)];

void restore() {
  for (size_t i = 0; i < std::size(kSignals); ++i) ::sigaction(kSignals[i], &before[i], nullptr);
}

void request(int) {
  requested = 1;
  restore();  // sigaction may be called here
}

}  // namespace

StopSignals::StopSignals() {
  requested = 0;
  struct sigaction action {};
  action.sa_handler = request;
  action.sa_flags = SA_RESTART;
  for (size_t i = 0; i < std::size(kSignals); ++i) ::sigaction(kSignals[i], &action, &before[i]);
}

StopSignals::~StopSignals() { restore(); }

bool stop_requested() { return requested != 0; }

}  // namespace ringtape
