#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "comm/base/deadline.h"

namespace ringtape::comm {

// This process's standard output and error, written by separate threads: a call of write() never waits for readers.
// Lines that are not read yet are kept, up to a limit. Further lines are lost, and a line on standard error says how
// many. Only one thread may use it.
class Display {
 public:
  static constexpr Seconds kStill{1};  // a reader that takes nothing for so long is ignored

  Display();
  ~Display();  // lines that have not been read are lost
  Display(const Display&) = delete;
  Display& operator=(const Display&) = delete;

  // To stream 1 or 2: lines with their line ends. Each line is written with one call, so that lines stay whole if
  // several processes write.
  void write(int stream, std::string lines);

  // The limit is reached, but the reader is active: a caller that waits with more lines loses nothing.
  bool is_full(int stream) const;

  // A line that is drawn below all others while it is not empty; on a terminal only.
  bool is_terminal() const { return terminal_; }
  void bar(std::string text);

  // Waits until everything is written, or nothing is read for `patience`, or over() is true, which is called many times
  // a second.
  void finish(Seconds patience, const std::function<bool()>& over);

  // Why standard output could not be written, other than that its reader has gone; empty: it could.
  std::string lost() const;

 private:
  class Outlet;
  Outlet& of(int stream) const { return stream == 1 && first_ ? *first_ : *second_; }
  void tell_losses();
  void flush(Seconds patience, const std::function<bool()>& over);

  const bool terminal_;
  // first_: null if both streams go to the same file or terminal, so that lines and bar keep their order.
  std::unique_ptr<Outlet> first_, second_;
  int64_t lost_[2] = {0, 0};  // lost lines of each stream that are not reported yet
};

}  // namespace ringtape::comm
