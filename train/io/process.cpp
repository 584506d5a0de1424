#include "train/io/process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "comm/base/fd.h"
#include "core/check.h"

extern char** environ;

namespace ringtape {
namespace {

constexpr size_t kMaxText = 4096;  // bytes of its output that are kept
constexpr int kLook = 50;          // milliseconds between looks at the process, the clock and the cancellation

// Null-terminated, for exec.
std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (const std::string& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

// Those given, then this process's, except for names that are given.
std::vector<std::string> with_own_environment(const std::vector<std::string>& given) {
  std::vector<std::string> out = given;
  for (char** each = environ; *each; ++each) {
    const std::string name(*each, std::strcspn(*each, "="));
    const auto replaces = [&](const std::string& variable) { return variable.starts_with(name + "="); };
    if (std::none_of(given.begin(), given.end(), replaces)) out.emplace_back(*each);
  }
  return out;
}

// A program that may be killed has a process group of its own.
bool has_own_group(const ProgramOptions& options) { return options.time_limit > 0 || options.cancelled; }

// Starts a program, which writes to `output` what is kept of it; throws IoError.
pid_t start(const std::vector<std::string>& command, const ProgramOptions& options, int output) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  if (options.quiet) posix_spawn_file_actions_adddup2(&actions, output, 1);
  if (!options.show) posix_spawn_file_actions_adddup2(&actions, output, 2);
  posix_spawnattr_t attributes;  // signals that this process ignores, other programs may rely on
  posix_spawnattr_init(&attributes);
  const int group = has_own_group(options) ? POSIX_SPAWN_SETPGROUP : 0;
  posix_spawnattr_setflags(&attributes, short(POSIX_SPAWN_SETSIGDEF | group));
  sigset_t ignored_here;
  sigemptyset(&ignored_here);
  for (const int signal : {SIGPIPE, SIGXFSZ}) sigaddset(&ignored_here, signal);
  posix_spawnattr_setsigdefault(&attributes, &ignored_here);
  pid_t child = 0;
  const std::vector<std::string> variables = with_own_environment(options.environment);
  const int error = ::posix_spawnp(&child, command[0].c_str(), &actions, &attributes, pointers(command).data(),
                                   pointers(variables).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  RT_CHECK_AS(IoError, error == 0, command[0], ": cannot start: ", std::strerror(error), "; is it installed?");
  return child;
}

// Reads what is there within `wait` milliseconds; false at the end of the file.
bool read_some(int fd, std::string& text, int wait) {
  pollfd ready{fd, POLLIN, 0};
  if (::poll(&ready, 1, wait) <= 0) return true;
  char block[4096];
  const ssize_t n = ::read(fd, block, sizeof block);
  if (n > 0) text.append(block, size_t(n));
  if (text.size() > 2 * kMaxText) text.erase(0, text.size() - kMaxText);
  return n > 0 || (n < 0 && errno == EINTR);
}

// Reads the output of a program until it has ended; kills it when it is late or cancelled.
Finished wait_for(pid_t child, const ProgramOptions& options, int output) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const bool own_group = has_own_group(options);
  Finished out{0, ""};
  int status = 0;
  bool open = true, running = true;
  while (running) {  // what it has started may keep the pipe open
    if (open) open = read_some(output, out.error, kLook);
    const pid_t ended = ::waitpid(child, &status, open || own_group ? WNOHANG : 0);
    running = ended == 0 || (ended < 0 && errno == EINTR);
    if (!running || !own_group) continue;
    if (!open) ::poll(nullptr, 0, kLook);
    const bool late =
        options.time_limit > 0 && std::chrono::duration<double>(Clock::now() - begin).count() > options.time_limit;
    if (out.in_time && (late || (options.cancelled && *options.cancelled))) {
      out.in_time = false;
      ::kill(-child, SIGKILL);
    }
  }
  for (size_t before = SIZE_MAX; open && before != out.error.size();) {  // the rest of its output
    before = out.error.size();
    open = read_some(output, out.error, 0);
  }
  if (out.error.size() > kMaxText) out.error.erase(0, out.error.size() - kMaxText);
  while (out.error.ends_with('\n')) out.error.pop_back();
  out.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return out;
}

}  // namespace

Finished run_program(const std::vector<std::string>& command, const ProgramOptions& options) {
  int ends[2];
  RT_CHECK_AS(IoError, ::pipe2(ends, O_CLOEXEC) == 0, command[0], ": cannot start: ", std::strerror(errno));
  const comm::Fd read(ends[0]);
  comm::Fd write(ends[1]);
  const pid_t child = start(command, options, write.get());
  write = comm::Fd();
  return wait_for(child, options, read.get());
}

std::vector<std::string> split_words(const std::string& line, const std::string& where) {
  std::vector<std::string> out;
  std::string word;
  bool in_word = false;
  char quote = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '\\' && quote != '\'' && i + 1 < line.size()) {
      word += line[++i], in_word = true;
    } else if (quote) {
      if (c == quote) quote = 0;
      else word += c;
    } else if (c == '\'' || c == '"') {
      quote = c, in_word = true;
    } else if (std::strchr(" \t\n", c)) {
      if (in_word) out.push_back(std::move(word));
      word.clear(), in_word = false;
    } else {
      word += c, in_word = true;
    }
  }
  RT_CHECK_AS(UsageError, !quote, where, ": an open ", quote, " in '", line, "'");
  if (in_word) out.push_back(word);
  return out;
}

bool is_program(const std::string& name) {
  const auto executable = [](const std::string& path) {
    struct stat found;
    if (::stat(path.c_str(), &found) != 0 || !S_ISREG(found.st_mode) || ::access(path.c_str(), X_OK) != 0) return false;
    std::string begin(4, '\0');
    std::ifstream(path, std::ios::binary).read(begin.data(), 4);  // zeros of what may be executed, but not read
    return begin == std::string(4, '\0') || begin == "\177ELF" || begin.starts_with("#!");
  };
  if (name.find('/') != std::string::npos) return executable(name);
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path ? path : "/bin:/usr/bin");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (executable((folder.empty() ? "." : folder) + "/" + name)) return true;
  return false;
}

}  // namespace ringtape
