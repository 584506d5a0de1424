#include "comm/launch/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/check.h"

namespace ringtape::comm {

Signals::Signals() {
  sigset_t all;
  sigemptyset(&all);
  for (const int signal : {SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD}) sigaddset(&all, signal);
  ::sigprocmask(SIG_BLOCK, &all, &before_);
  fd_ = Fd(::signalfd(-1, &all, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!fd_) ::sigprocmask(SIG_SETMASK, &before_, nullptr);
  RT_CHECK_AS(IoError, fd_, "cannot wait for signals: ", std::strerror(errno));
}

Signals::~Signals() {
  while (next()) {}
  ::sigprocmask(SIG_SETMASK, &before_, nullptr);
}

std::optional<int> Signals::next() {
  signalfd_siginfo info;
  ssize_t n;
  while ((n = ::read(fd_.get(), &info, sizeof info)) < 0 && errno == EINTR) {}
  return n == ssize_t(sizeof info) ? std::optional(int(info.ssi_signo)) : std::nullopt;
}

}  // namespace ringtape::comm
