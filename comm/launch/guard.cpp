#include "comm/launch/guard.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <set>

#include "comm/launch/pipe.h"
#include "core/check.h"
#include "core/limits.h"

namespace ringtape::comm {

// Keeps only the pipe open, so that a reader of this process's output does not wait for the guard.
static void close_all_but(int fd) {
  const int null = ::open("/dev/null", O_RDWR);
  for (int standard = 0; standard < 3; ++standard) ::dup2(null, standard);
  for (int other = 3, end = int(::sysconf(_SC_OPEN_MAX) < 65536 ? ::sysconf(_SC_OPEN_MAX) : 65536); other < end;
       ++other)
    if (other != fd) ::close(other);
}

[[noreturn]] static void stand_guard(int fd) {
  ::setsid();
  ::prctl(PR_SET_NAME, "ringtape-guard");
  close_all_but(fd);
  std::set<pid_t> groups;
  for (pid_t message;;) {  // a group to watch; negative: a group to forget
    const ssize_t n = ::read(fd, &message, sizeof message);
    if (n < 0 && errno == EINTR) continue;
    if (n != ssize_t(sizeof message)) break;
    if (message > 0) groups.insert(message);
    else groups.erase(-message);
  }
  for (const pid_t group : groups) ::kill(-group, SIGKILL);
  ::_exit(0);
}

Guard::Guard() {
  PipeEnds pipe = make_pipe();
  pid_ = ::fork();
  RT_CHECK_AS(IoError, pid_ >= 0, "cannot start a process: ", process_reason(errno));
  if (pid_ == 0) {
    pipe.write = Fd();
    stand_guard(pipe.read.get());
  }
  pipe_ = std::move(pipe.write);
}

Guard::~Guard() {
  pipe_ = Fd();
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Guard::forget(pid_t group) {
  const pid_t message = -group;
  write_all(pipe_.get(), {reinterpret_cast<const char*>(&message), sizeof message});
}

}  // namespace ringtape::comm
