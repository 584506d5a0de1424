#pragma once
#include <csignal>
#include <map>
#include <optional>

#include "comm/base/fd.h"

namespace ringtape::comm {

// While this object lives, the signals that a launcher forwards, and SIGCHLD, are read here, by the thread that made
// it. They are held back, also in threads that are started meanwhile; an older thread that takes one, such as the CUDA
// driver's, hands it over. A signal that the process ignores, as under nohup, stays ignored. One object at a time.
class Signals {
 public:
  Signals();  // throws IoError
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  int fd() const { return fd_.get(); }  // for poll()
  std::optional<int> next();            // does not wait
  void restore() const;                 // what was before; also in a new process, async-signal-safe

 private:
  sigset_t before_;
  std::map<int, struct sigaction> actions_;  // by signal, before
  Fd fd_;
};

}  // namespace ringtape::comm
