#include "train/compare/child_run.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "comm/launch/child.h"
#include "comm/launch/guard.h"
#include "comm/launch/signals.h"
#include "train/run/run_dir.h"

namespace ringtape {
namespace {

// Reads a pipe line by line.
class Lines {
 public:
  template <class F> void read(int fd, const F& f) {
    char block[4096];
    for (ssize_t n; (n = ::read(fd, block, sizeof block)) > 0 || (n < 0 && errno == EINTR);)
      if (n > 0) rest_.append(block, size_t(n));
    for (size_t end; (end = rest_.find('\n')) != std::string::npos; rest_.erase(0, end + 1)) f(rest_.substr(0, end));
  }

 private:
  std::string rest_;
};

std::vector<std::string> environment() {
  std::vector<std::string> out;
  for (char** v = environ; *v; ++v) out.emplace_back(*v);
  return out;
}

}  // namespace

int run_child(const std::vector<std::string>& arguments, const std::string& log,
              const std::function<void(const std::string&)>& show) {
  LineFile file(log);
  comm::Signals signals;
  comm::Guard guard;
  std::vector<std::string> command = {""};
  command.insert(command.end(), arguments.begin(), arguments.end());
  const comm::Child child = comm::start_child(
      {.command = command, .environment = environment(), .cores = {}, .announced = guard.to_watch()}, signals);
  Lines out, err;
  const auto drain = [&] {
    out.read(child.out.get(), [&](const std::string& line) { file.write(line), show(line); });
    err.read(child.err.get(), [&](const std::string& line) { file.write(line); });
  };
  for (int status = 0;;) {
    pollfd fds[] = {{signals.fd(), POLLIN, 0}};
    ::poll(fds, 1, 50);
    while (const auto signal = signals.next())
      if (*signal != SIGCHLD) ::kill(-child.pid, *signal);
    drain();
    siginfo_t ended{};
    if (::waitid(P_PID, id_t(child.pid), &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid != child.pid)
      continue;
    guard.forget(child.pid);
    ::waitpid(child.pid, &status, 0);
    drain();
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
}

}  // namespace ringtape
