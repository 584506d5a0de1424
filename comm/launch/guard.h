#pragma once
#include <sys/types.h>

#include "comm/base/fd.h"

namespace ringtape::comm {

// A process that lives slightly longer than this one: when this one has ended, for whatever reason, the guard kills the
// process groups that it watches. A pipe tells it, so that it misses nothing; signals such as ^C do not reach it.
class Guard {
 public:
  Guard();  // throws IoError
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  int to_watch() const { return pipe_.get(); }  // write a group (pid_t) here to have it watched
  void forget(pid_t group);  // call before waiting for its leader, since the number can be reused after that
  pid_t pid() const { return pid_; }

 private:
  Fd pipe_;
  pid_t pid_;
};

}  // namespace ringtape::comm
