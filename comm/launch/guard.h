#pragma once
#include <sys/types.h>

#include "comm/base/fd.h"

namespace ringtape::comm {

// A process that outlives this one by a moment: when this one is gone, however it went, the process
// groups it watches are killed. It learns that from a pipe, so that nothing that can happen here is
// missed; ^C and the like do not reach it.
class Guard {
 public:
  Guard();  // throws IoError
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  int to_watch() const { return pipe_.get(); }  // a group (pid_t) that is written there is watched from then on
  void forget(pid_t group);  // while its leader is not yet waited for, since the number can be another's after that
  pid_t pid() const { return pid_; }

 private:
  Fd pipe_;
  pid_t pid_;
};

}  // namespace ringtape::comm
