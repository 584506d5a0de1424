#pragma once
#include <deque>
#include <string>
#include <string_view>

#include "comm/base/fd.h"
#include "comm/launch/display.h"

namespace ringtape::comm {

// The output of a rank: whole lines are displayed with the prefix "[2] " and written to the rank's log; the last ones
// are kept.
class RankOutput {
 public:
  // `display`: null for none; `prefix`: whether lines get it; `log`: the file, empty for none; others may append to it.
  // Throws IoError.
  RankOutput(int rank, Display* display, bool prefix, const std::string& log);

  // From descriptor 1 or 2 of the rank.
  void take(int stream, std::string_view bytes);
  void finish();  // an unfinished line counts as a line
  bool is_full(int stream) const { return display_ && display_->is_full(stream); }

  // The last lines of standard error; if there were none, of standard output.
  const std::deque<std::string>& last_lines() const {
    return streams_[1].last.empty() ? streams_[0].last : streams_[1].last;
  }
  // Why lines are missing in the log, with its name; empty: none are.
  const std::string& lost() const { return lost_; }

 private:
  struct Stream {
    std::string prefix, open;  // `open`: text without a line end yet
    std::deque<std::string> last;
  };
  void line(int stream, std::string_view text);

  Display* const display_;
  const std::string path_;  // of the log
  Fd log_;
  std::string lost_;
  Stream streams_[2];
};

}  // namespace ringtape::comm
