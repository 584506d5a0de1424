#pragma once
#include <csignal>
#include <optional>

#include "comm/base/fd.h"

namespace ringtape::comm {

// While one lives, signals that a launcher passes on, and those of its children, wait to be read here. Threads started
// meanwhile leave them alone, too. One that the process ignores, as under nohup, stays ignored.
class Signals {
 public:
  Signals();  // throws IoError
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  int fd() const { return fd_.get(); }        // for poll()
  std::optional<int> next();                  // without waiting
  const sigset_t& before() const { return before_; }

 private:
  sigset_t before_;
  Fd fd_;
};

}  // namespace ringtape::comm
