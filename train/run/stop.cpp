#include "train/run/stop.h"

#include <poll.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <string_view>

#include "comm/launch/launch.h"

namespace ringtape {
namespace {

constexpr std::string_view kAtOnce =
    "ringtape: stopped by a signal before a step was done: exit code 75; run the same command again, with or without "
    "--resume\n";

volatile sig_atomic_t requested = 0, speaks_of_it = 0;
timespec first[NSIG];  // by the signal

constexpr int kSignals[] = {SIGTERM, SIGINT, SIGUSR1, SIGHUP};

sigset_t signals() {
  sigset_t out;
  sigemptyset(&out);
  for (const int signal : kSignals) sigaddset(&out, signal);
  return out;
}

bool is_ignored(int signal) {
  struct sigaction now {};
  return ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

void handle(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  action.sa_mask = signals();
  for (const int signal : kSignals)
    if (signal != SIGHUP || !is_ignored(signal)) ::sigaction(signal, &action, nullptr);
  ::pthread_sigmask(SIG_UNBLOCK, &action.sa_mask, nullptr);
}

// Signal handlers: they may call only async-signal-safe functions.
void exit_at_once(int) {
  pollfd error{2, POLLOUT, 0};
  if (speaks_of_it && ::poll(&error, 1, 0) == 1) (void)!::write(2, kAtOnce.data(), kAtOnce.size());
  ::_exit(comm::kPreempted);
}

// A second signal ends the process as always, but not within a second: launchers and terminals repeat the first one.
void request(int signal) {
  timespec now, &before = first[signal];
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  requested = 1;
  if (before.tv_sec == 0) {
    before = now;
  } else if (double(now.tv_sec - before.tv_sec) + 1e-9 * double(now.tv_nsec - before.tv_nsec) >= 1) {
    ::signal(signal, SIG_DFL);
    ::raise(signal);
  }
}

}  // namespace

void hold_stops() {
  const sigset_t all = signals();
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

void stop_at_once(bool speaks) {
  speaks_of_it = speaks;
  handle(exit_at_once);
}

void stop_after_step() { handle(request); }

bool stop_requested() { return requested != 0; }

void stop_as_always() { handle(SIG_DFL); }

}  // namespace ringtape
