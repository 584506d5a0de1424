#include "comm/launch/child.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "comm/launch/pipe.h"
#include "core/check.h"
#include "core/limits.h"

namespace ringtape::comm {

constexpr const char* kSelf = "/proc/self/exe";

static std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> out;
  for (const std::string& word : words) out.push_back(const_cast<char*>(word.c_str()));
  out.push_back(nullptr);
  return out;
}

// Turns the new process into another program. Only system calls, because other threads may have held locks. Returns
// only if it fails.
static void become(const ChildSpec& spec, const Signals& signals, char* const* argv, char* const* environment,
                   pid_t parent, int out, int err) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // the parent died before the prctl call
  const pid_t self = ::getpid();
  if (spec.announced >= 0 && ::write(spec.announced, &self, sizeof self) != ssize_t(sizeof self) && errno != EPIPE)
    return;  // EPIPE: somebody has killed who reads it, and only that protection is lost
  if (!spec.input) {
    const int null = ::open("/dev/null", O_RDONLY);
    if (null < 0 || ::dup2(null, 0) < 0) return;
  }
  if (::dup2(out, 1) < 0 || ::dup2(err, 2) < 0) return;
  if (!spec.cores.empty()) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int core : spec.cores) CPU_SET(size_t(core), &set);
    ::sched_setaffinity(0, sizeof set, &set);  // optional: not every system allows it
  }
  if (spec.inherited >= 0) ::fcntl(spec.inherited, F_SETFD, 0);
  restore_descriptor_limit();
  for (const int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_DFL);
  signals.restore();
  ::execvpe(spec.command[0].empty() ? kSelf : argv[0], argv, environment);
}

Child start_child(const ChildSpec& spec, const Signals& signals) {
  PipeEnds out = make_pipe(), err = make_pipe(), failure = make_pipe();
  std::vector<std::string> words = spec.command;
  if (words[0].empty()) words[0] = "ringtape";
  const std::vector<char*> argv = pointers(words), environment = pointers(spec.environment);
  const pid_t parent = ::getpid(), pid = ::fork();
  RT_CHECK_AS(IoError, pid >= 0, "cannot start a process: ", process_reason(errno));
  if (pid == 0) {
    become(spec, signals, argv.data(), environment.data(), parent, out.write.get(), err.write.get());
    const int reason = errno;
    (void)!::write(failure.write.get(), &reason, sizeof reason);
    ::_exit(127);
  }
  ::setpgid(pid, pid);  // parent and child both call it, so that neither has to wait
  failure.write = Fd();
  int reason = 0;
  ssize_t n;
  while ((n = ::read(failure.read.get(), &reason, sizeof reason)) < 0 && errno == EINTR) {
  }
  if (n > 0) {
    ::waitpid(pid, nullptr, 0);
    throw UsageError(concat("cannot run ", words[0], ": ", std::strerror(reason)));
  }
  for (const Fd* end : {&out.read, &err.read}) ::fcntl(end->get(), F_SETFL, O_NONBLOCK);
  return {pid, std::move(out.read), std::move(err.read)};
}

}  // namespace ringtape::comm
