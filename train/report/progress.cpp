#include "train/report/progress.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "comm/base/fd.h"
#include "core/env_rank.h"
#include "core/text.h"

namespace ringtape {
namespace {

constexpr std::chrono::milliseconds kRedraw{100};

std::string clock_text(double seconds) {
  const auto s = int64_t(std::clamp(seconds, 0.0, 359999.0));
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{:02}:{:02}", s / 60, s % 60);
}

std::string rate_text(double rate) {
  return rate >= 10'000 ? fmt::format("{:.1f}k", rate / 1000)
         : rate >= 100  ? fmt::format("{:.0f}", rate)
                        : fmt::format("{:.2f}", rate);
}

std::string bar_text(double part, int cells, bool unicode) {
  if (!unicode) {
    const int full = int(part * cells);
    return std::string(size_t(full), '#') + std::string(size_t(cells - full), ' ');
  }
  static const char* eighths[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};
  const int filled = int(part * cells * 8);
  std::string out;
  for (int i = 0; i < cells; ++i) out += eighths[std::clamp(filled - 8 * i, 0, 8)];
  return out;
}

int terminal_width() {
  const comm::Fd terminal(::isatty(STDERR_FILENO) ? -1 : ::open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC));
  winsize size{};
  const int fd = terminal ? terminal.get() : STDERR_FILENO;
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// The pipe to the launcher, which owns the terminal; -1: none. Child processes do not inherit it.
int launchers_pipe() {
  static const int pipe = [] {
    const int fd = env::progress();
    struct stat s {};
    if (fd == 0 || ::fstat(fd, &s) != 0 || !S_ISFIFO(s.st_mode)) return -1;
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    ::fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
  }();
  return pipe;
}

// Replaces the bar; empty: removes it. A launcher gets each bar as a line and draws the last one; if the pipe is full,
// the line is dropped.
void draw(const std::string& bar) {
  if (launchers_pipe() >= 0) {
    const std::string line = bar + "\n";
    (void)!::write(launchers_pipe(), line.data(), line.size());
    return;
  }
  pollfd terminal{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&terminal, 1, 0) != 1) return;  // stopped by Ctrl-S
  std::fprintf(stderr, "\r%s\033[K", bar.c_str());
  std::fflush(stderr);
}

bool utf8_terminal() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"})
    if (const char* value = std::getenv(name); value && *value)
      return std::strstr(value, "UTF-8") || std::strstr(value, "utf8");
  return false;
}

}  // namespace

std::string progress_text(const std::string& title, int64_t done, int64_t total, double seconds,
                          const std::string& note, int width, bool unicode, const char* unit) {
  const double part = total > 0 ? std::min(1.0, double(done) / double(total)) : 1,
               rate = seconds > 0 ? double(done) / seconds : 0;
  const std::string left = done > 0 ? clock_text(double(total - done) / rate) : "?";
  const std::string head = fmt::format("{}: {:3}%|", title, int(100 * part));
  const std::string tail = fmt::format("| {}/{} [{}<{}, {} {}/s{}{}]", done, total, clock_text(seconds), left,
                                       rate_text(rate), unit, note.empty() ? "" : ", ", note);
  const int cells = width - 1 - int(head.size() + tail.size());
  const std::string line = head + bar_text(part, std::clamp(cells, 0, 30), unicode) + tail;
  return cells < 0 ? line.substr(0, size_t(std::max(0, width - 1))) : line;
}

Progress::Progress(std::string title, int64_t total, bool enabled, const char* unit)
    : title_(std::move(title)), total_(total), unit_(unit), begin_(Clock::now()), next_(begin_ + kRedraw) {
  const char* terminal = std::getenv("TERM");
  enabled_ = enabled && (launchers_pipe() >= 0 || ::isatty(STDERR_FILENO)) &&
             !(terminal && std::strcmp(terminal, "dumb") == 0);
  const char* no_color = std::getenv("NO_COLOR");
  color_ = !(no_color && *no_color);
  unicode_ = utf8_terminal();
}

Progress::~Progress() {
  if (drawn_) draw("");
}

bool Progress::due() { return enabled_ && Clock::now() >= next_; }

void Progress::update(int64_t done, const std::string& note) {
  if (!due()) return;
  next_ = Clock::now() + kRedraw;
  drawn_ = true;
  const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
  const std::string text = progress_text(title_, done, total_, seconds, note, terminal_width(), unicode_, unit_);
  draw(color_ ? concat("\033[36m", text, "\033[0m") : text);
}

}  // namespace ringtape
