#pragma once
#include <functional>
#include <memory>
#include <string>

#include "comm/base/deadline.h"

namespace ringtape::comm {

// This process's standard output and error, written by threads of their own: whoever hands over lines never waits for
// who reads them. What is not read yet is kept, up to a bound; beyond that lines are lost, of which a line on standard
// error tells how many. For one thread.
class Display {
 public:
  static constexpr Seconds kStill{1};  // a reader that takes nothing for so long is not waited for

  Display();
  ~Display();  // what has not been read by then is lost
  Display(const Display&) = delete;
  Display& operator=(const Display&) = delete;

  // To stream 1 or 2: lines, each with its end; each is written with one call, so that they
  // stay whole where several processes write.
  void write(int stream, std::string lines);

  // The bound is reached, but what there is is being read: who waits with more loses nothing.
  bool is_full(int stream) const;

  // A line that is drawn below all others while it is not empty; on a terminal only.
  bool is_terminal() const { return terminal_; }
  void bar(std::string text);

  // Waits until all is written, or nothing is read for `patience`, or `over` says so,
  // which is asked many times a second.
  void finish(Seconds patience, const std::function<bool()>& over);

 private:
  class Outlet;
  Outlet& of(int stream) const { return stream == 1 && first_ ? *first_ : *second_; }
  void tell_losses();
  void flush(Seconds patience, const std::function<bool()>& over);

  const bool terminal_;
  // first_: none where both streams lead to one place, so that lines and bar keep their order.
  std::unique_ptr<Outlet> first_, second_;
  int64_t lost_[2] = {0, 0};                // lines of each stream that nobody has been told of
};

}  // namespace ringtape::comm
