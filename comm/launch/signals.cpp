#include "comm/launch/signals.h"

#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "core/check.h"

namespace ringtape::comm {

static std::atomic<pid_t> reader{0};  // thread

// In a thread that does not hold signals back.
static void hand_over(int signal) {
  const int before = errno;
  ::syscall(SYS_tgkill, ::getpid(), reader.load(), signal);
  errno = before;
}

Signals::Signals() {
  reader = pid_t(::syscall(SYS_gettid));
  struct sigaction action {};
  action.sa_handler = hand_over;
  action.sa_flags = SA_RESTART;
  sigset_t all;
  sigemptyset(&all);
  for (const int signal : {SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD}) {
    struct sigaction now {};
    ::sigaction(signal, nullptr, &now);
    if (now.sa_handler == SIG_IGN && signal != SIGCHLD) continue;
    sigaddset(&all, signal);
    actions_[signal] = now;
  }
  ::sigprocmask(SIG_BLOCK, &all, &before_);
  for (const auto& [signal, before] : actions_) ::sigaction(signal, &action, nullptr);
  fd_ = Fd(::signalfd(-1, &all, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!fd_) restore();
  RT_CHECK_AS(IoError, fd_, "cannot wait for signals: ", std::strerror(errno));
}

Signals::~Signals() {
  while (next()) {
  }
  restore();
}

void Signals::restore() const {
  for (const auto& [signal, before] : actions_) ::sigaction(signal, &before, nullptr);
  ::sigprocmask(SIG_SETMASK, &before_, nullptr);
}

std::optional<int> Signals::next() {
  signalfd_siginfo info;
  ssize_t n;
  while ((n = ::read(fd_.get(), &info, sizeof info)) < 0 && errno == EINTR) {
  }
  return n == ssize_t(sizeof info) ? std::optional(int(info.ssi_signo)) : std::nullopt;
}

}  // namespace ringtape::comm
