#pragma once
#include <csignal>
#include <optional>

#include "comm/base/fd.h"

namespace ringtape::comm {

// While this object lives, the signals that a launcher forwards, and SIGCHLD, are held back and read here, also in
// threads that are started meanwhile. A signal that the process ignores, as under nohup, stays ignored.
class Signals {
 public:
  Signals();  // throws IoError
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  int fd() const { return fd_.get(); }        // for poll()
  std::optional<int> next();                  // does not wait
  const sigset_t& before() const { return before_; }

 private:
  sigset_t before_;
  Fd fd_;
};

}  // namespace ringtape::comm
