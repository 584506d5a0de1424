#pragma once
#include <sys/types.h>

#include <string>
#include <vector>

#include "comm/base/fd.h"
#include "comm/store/store.h"
#include "core/check.h"

// Identification of machines and processes, for ranks of one machine.
namespace ringtape::comm {

// The same text in two processes if they have the same kernel and the same namespace of this kind (`man 7 namespaces`):
// "pid" for processes that can see each other, "net" for processes that reach each other over the loopback address.
std::string host_identity(const char* names);

// The address by which other hosts reach this one: that of the way to the store, or else the first that is no loopback
// address; in digits, empty if there is none.
std::string outer_address(const Store& store);

// Another process, which may end at any moment. If the kernel has pidfds (Linux 5.3), it cannot be confused with a
// later process of the same id.
class PeerProcess {
 public:
  explicit PeerProcess(pid_t pid);  // of a running process
  pid_t pid() const { return pid_; }
  bool ended() const;  // true also for a zombie

 private:
  const pid_t pid_;
  const Fd fd_;  // none: the kernel has no pidfds
};

// Transport::lost() of ranks of one machine: `peer` has left the group, or any process has died. A Peer has left(),
// ended() and its PeerProcess, null if it is of this process.
template <class Peer> std::string why_lost(const std::vector<Peer>& peers, int peer) {
  for (int r = 0; r < int(peers.size()); ++r) {
    const Peer& p = peers[size_t(r)];
    if (p.left()) {
      if (r == peer) return concat("rank ", r, " has left the group");
    } else if (p.ended()) {
      return concat("rank ", r, " (process ", p.process->pid(), ") died");
    }
  }
  return "";
}

}  // namespace ringtape::comm
