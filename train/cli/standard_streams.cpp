#include "train/cli/standard_streams.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "core/log.h"
#include "core/text.h"
#include "train/run/stop.h"

namespace ringtape::cli {

static std::string waiting;  // lines that nobody has taken yet
static int64_t lost_lines = 0;

void open_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(stream, F_GETFD) < 0 && errno == EBADF)  // open() returns the lowest free number, which is this one
      (void)::open("/dev/null", stream == STDIN_FILENO ? O_RDONLY : O_WRONLY);
}

// Writes what waits, as far as somebody takes it within so many milliseconds each time.
static void pass_on(int patience) {
  constexpr size_t kPortion = 4096;  // a pipe that has room takes so much at once
  pollfd output{STDOUT_FILENO, POLLOUT, 0};
  size_t done = 0;
  while (done < waiting.size() && ::poll(&output, 1, patience) == 1) {
    const size_t size = std::min(kPortion, waiting.size() - done);
    std::fwrite(waiting.data() + done, 1, size, stdout);
    std::fflush(stdout);
    done += size;
  }
  waiting.erase(0, done);
}

void print_line(const std::string& text) {
  constexpr size_t kMax = 4 << 20;  // bytes
  if (waiting.size() + text.size() > kMax) ++lost_lines;
  else waiting += text + '\n';
  pass_on(0);
}

void await_reader(bool failed) {
  constexpr int kLook = 100, kLooks = 10;  // milliseconds, and how often nothing is taken
  for (int still = 0; !waiting.empty() && !((failed || stop_requested()) && still == kLooks);) {
    const size_t before = waiting.size();
    pass_on(kLook);
    still = waiting.size() < before ? 0 : std::min(still + 1, kLooks);
  }
  lost_lines += std::count(waiting.begin(), waiting.end(), '\n');
  waiting.clear();
  if (lost_lines > 0) log_warn(lost_lines, lost_lines == 1 ? " line" : " lines", " lost: nobody read standard output");
  lost_lines = 0;
}

std::string lost_output() {
  await_reader();
  errno = 0;
  const bool flushed = std::fflush(stdout) == 0;
  const int error = errno;
  if (flushed && !std::ferror(stdout)) return "";
  pollfd output{STDOUT_FILENO, 0, 0};
  if (::poll(&output, 1, 0) == 1 && (output.revents & POLLERR)) return "";
  return concat("standard output: cannot write: ", flushed ? "an earlier part of it is lost" : std::strerror(error));
}

}  // namespace ringtape::cli
