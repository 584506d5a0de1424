#pragma once
#include <sys/types.h>

#include <string>

#include "comm/base/fd.h"

// What ranks of one machine know of each other.
namespace ringtape::comm {

// The same text in two processes if they run under one kernel and in one namespace of that kind (`man 7 namespaces`):
// "pid" for those that can see each other's processes, "net" for those that reach each other at the loopback address.
std::string host_identity(const char* names);

// Another process, which may end at any moment. Its id cannot be taken for a later process's,
// where the kernel has pidfds (Linux 5.3).
class PeerProcess {
 public:
  explicit PeerProcess(pid_t pid);  // of one that runs
  pid_t pid() const { return pid_; }
  bool ended() const;  // a zombie has

 private:
  const pid_t pid_;
  const Fd fd_;  // none: there are no pidfds
};

}  // namespace ringtape::comm
