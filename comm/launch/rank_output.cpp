#include "comm/launch/rank_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "comm/launch/pipe.h"
#include "core/check.h"
#include "core/limits.h"

namespace ringtape::comm {

constexpr size_t kLastLines = 20, kLongestLine = 64 << 10;  // longer lines are divided

static std::string prefix_of(int rank, int stream) {
  const std::string text = concat("[", rank, "]");
  if (!::isatty(stream) || std::getenv("NO_COLOR")) return text + " ";
  return concat("\033[", 31 + rank % 6, "m", text, "\033[0m ");
}

RankOutput::RankOutput(int rank, Display* display, bool prefix, const std::string& log)
    : display_(display), path_(log) {
  for (int stream = 1; stream <= 2 && prefix; ++stream) streams_[stream - 1].prefix = prefix_of(rank, stream);
  if (log.empty()) return;
  log_ = Fd(::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666));
  RT_CHECK_AS(IoError, log_, log, ": cannot write: ", reason(errno));
}

void RankOutput::take(int stream, std::string_view bytes) {
  std::string& open = streams_[stream - 1].open;
  for (size_t end; (end = bytes.find('\n')) != std::string_view::npos; bytes.remove_prefix(end + 1)) {
    line(stream, open.append(bytes.substr(0, end)));
    open.clear();
  }
  open.append(bytes);
  if (open.size() < kLongestLine) return;
  line(stream, open);
  open.clear();
}

void RankOutput::finish() {
  for (int stream = 1; stream <= 2; ++stream)
    if (const std::string rest = std::exchange(streams_[stream - 1].open, {}); !rest.empty()) line(stream, rest);
}

void RankOutput::line(int stream, std::string_view text) {
  Stream& s = streams_[stream - 1];
  if (display_) display_->write(stream, concat(s.prefix, text, "\n"));
  if (log_ && !write_all(log_.get(), concat(text, "\n")) && lost_.empty())
    lost_ = concat(path_, ": cannot write: ", reason(errno));
  s.last.emplace_back(text);
  if (s.last.size() > kLastLines) s.last.pop_front();
}

}  // namespace ringtape::comm
