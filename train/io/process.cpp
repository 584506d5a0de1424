#include "train/io/process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "core/check.h"

extern char** environ;

namespace ringtape {

static std::string read_all(int fd) {
  std::string out;
  char block[4096];
  for (ssize_t n; (n = ::read(fd, block, sizeof block)) > 0 || (n < 0 && errno == EINTR);)
    if (n > 0) out.append(block, size_t(n));
  while (out.ends_with('\n')) out.pop_back();
  return out;
}

Finished run_program(const std::vector<std::string>& command, bool show) {
  int ends[2];
  RT_CHECK_AS(IoError, ::pipe2(ends, O_CLOEXEC) == 0, command[0], ": cannot start: ", std::strerror(errno));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  if (!show) posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  posix_spawnattr_t attributes;  // signals that this process ignores, other programs may rely on
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  sigset_t ignored_here;
  sigemptyset(&ignored_here);
  for (const int signal : {SIGPIPE, SIGXFSZ}) sigaddset(&ignored_here, signal);
  posix_spawnattr_setsigdefault(&attributes, &ignored_here);
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, arguments[0], &actions, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  Finished out{0, error ? "" : read_all(ends[0])};
  ::close(ends[0]);
  RT_CHECK_AS(IoError, error == 0, command[0], ": cannot start: ", std::strerror(error), "; is it installed?");
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  out.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return out;
}

}  // namespace ringtape
