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
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "core/check.h"

extern char** environ;

namespace ringtape {
namespace {

constexpr size_t kMostText = 4096;  // bytes of its output that are kept
constexpr int kLook = 50;           // milliseconds between looks at the process, the clock and the cancellation

// Null-terminated, for exec.
std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (const std::string& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

// Reads what is there within `wait` milliseconds; false at the end of the file.
bool read_some(int fd, std::string& text, int wait) {
  pollfd ready{fd, POLLIN, 0};
  if (::poll(&ready, 1, wait) <= 0) return true;
  char block[4096];
  const ssize_t n = ::read(fd, block, sizeof block);
  if (n > 0) text.append(block, size_t(n));
  if (text.size() > 2 * kMostText) text.erase(0, text.size() - kMostText);
  return n > 0 || (n < 0 && errno == EINTR);
}

}  // namespace

Finished run_program(const std::vector<std::string>& command, const ProgramOptions& options) {
  const bool own_group = options.time_limit > 0 || options.cancelled;
  int ends[2];
  RT_CHECK_AS(IoError, ::pipe2(ends, O_CLOEXEC) == 0, command[0], ": cannot start: ", std::strerror(errno));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  if (options.quiet) posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  if (!options.show) posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
  posix_spawnattr_t attributes;  // signals that this process ignores, other programs may rely on
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, short(POSIX_SPAWN_SETSIGDEF | (own_group ? POSIX_SPAWN_SETPGROUP : 0)));
  sigset_t ignored_here;
  sigemptyset(&ignored_here);
  for (const int signal : {SIGPIPE, SIGXFSZ}) sigaddset(&ignored_here, signal);
  posix_spawnattr_setsigdefault(&attributes, &ignored_here);
  std::vector<std::string> variables = options.environment;
  for (char** each = environ; *each; ++each) {
    const std::string name(*each, std::strcspn(*each, "="));
    const auto replaces = [&](const std::string& variable) { return variable.starts_with(name + "="); };
    if (std::none_of(options.environment.begin(), options.environment.end(), replaces)) variables.emplace_back(*each);
  }
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, command[0].c_str(), &actions, &attributes, pointers(command).data(),
                                   pointers(variables).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (error) ::close(ends[0]);
  RT_CHECK_AS(IoError, error == 0, command[0], ": cannot start: ", std::strerror(error), "; is it installed?");

  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  Finished out{0, ""};
  int status = 0;
  bool open = true, running = true;
  while (running) {  // what it has started may keep the pipe open
    if (open) open = read_some(ends[0], out.error, kLook);
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
    open = read_some(ends[0], out.error, 0);
  }
  ::close(ends[0]);
  if (out.error.size() > kMostText) out.error.erase(0, out.error.size() - kMostText);
  while (out.error.ends_with('\n')) out.error.pop_back();
  out.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return out;
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
      if (c == quote)
        quote = 0;
      else
        word += c;
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
