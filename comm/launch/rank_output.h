#pragma once
#include <deque>
#include <string>

#include "comm/base/fd.h"
#include "comm/launch/display.h"

namespace ringtape::comm {

// What a rank writes: whole lines are displayed with "[2] " before them, and go to the
// rank's log; the last ones are kept.
class RankOutput {
 public:
  // `display`: null: none; with the prefix or without; `log`: the file, empty for none,
  // which others may append to. Throws IoError.
  RankOutput(int rank, Display* display, bool prefix, const std::string& log);

  // From descriptor 1 or 2 of the rank.
  void take(int stream, std::string_view bytes);
  void finish();  // an unfinished line is one, too
  bool is_full(int stream) const { return display_ && display_->is_full(stream); }

  // The last lines on standard error; those of the output if there were none.
  const std::deque<std::string>& last_lines() const {
    return streams_[1].last.empty() ? streams_[0].last : streams_[1].last;
  }

 private:
  struct Stream {
    std::string prefix, open;  // `open`: what has no line end yet
    std::deque<std::string> last;
  };
  void line(int stream, std::string_view text);

  Display* const display_;
  Fd log_;
  Stream streams_[2];
};

}  // namespace ringtape::comm
