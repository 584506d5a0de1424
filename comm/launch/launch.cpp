#include "comm/launch/launch.h"

#include <sys/prctl.h>
#include <sys/random.h>
#include <unistd.h>

#include "comm/launch/attempt.h"
#include "comm/launch/host_rendezvous.h"
#include "core/check.h"

namespace ringtape::comm {

namespace {

// While one lives, processes whose parent has died become children of this one.
class Subreaper {
 public:
  Subreaper() {
    ::prctl(PR_GET_CHILD_SUBREAPER, &before_);
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  }
  ~Subreaper() { ::prctl(PR_SET_CHILD_SUBREAPER, before_); }

 private:
  int before_ = 0;
};

}  // namespace

std::string random_token() {
  unsigned char bytes[16];
  RT_CHECK_AS(IoError, ::getrandom(bytes, sizeof bytes, 0) == ssize_t(sizeof bytes), "the system gives no random numbers");
  std::string out;
  for (const unsigned char byte : bytes)
    for (const int digit : {byte >> 4, byte & 15}) out += "0123456789abcdef"[digit];
  return out;
}

int launch(const Launch& l) {
  const Subreaper subreaper;
  Signals signals;
  Guard guard;
  const Deadline deadline(l.timeout.count() > 0 ? l.timeout : Seconds(1e8));
  for (int number = 0;; ++number) {
    std::unique_ptr<RendezvousServer> server;
    if (l.node == 0) server = host_rendezvous(l.nodes == 1, l.master_port, l.token);
    Attempt attempt(l, number, server ? server->port() : l.master_port, deadline, signals, guard);
    const int code = attempt.run();
    if (code == 0) return 0;
    write_all(2, attempt.report());
    if (attempt.stopped() || code == kPreempted || deadline.passed() || number == l.max_restarts) return code;
    write_all(2, concat("ringtape: restart ", number + 1, " of ", l.max_restarts, "\n"));
  }
}

}  // namespace ringtape::comm
