#include "comm/launch/launch.h"

#include <sys/prctl.h>
#include <unistd.h>

#include "comm/launch/attempt.h"
#include "comm/launch/pipe.h"
#include "comm/store/tcp_store.h"
#include "comm/store/token.h"
#include "core/env.h"

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

std::unique_ptr<StoreServer> host_store(const Launch& l) {
  try {
    return std::make_unique<StoreServer>(StoreServer::Options{.token = l.token,
                                                              .name = concat("ringtape launch (pid ", ::getpid(), ")"),
                                                              .host = l.nodes == 1 ? "127.0.0.1" : "",
                                                              .port = l.master_port,
                                                              .heartbeat = Seconds(env::heartbeat())});
  } catch (const CommError& e) {
    throw CommError(concat(e.what(), "; another port is given by --master-port"));
  }
}

}  // namespace

int launch(const Launch& l) {
  const Subreaper subreaper;
  Signals signals;
  Guard guard;
  const Deadline deadline(l.timeout.count() > 0 ? l.timeout : Seconds(1e8));
  for (int number = 0;; ++number) {
    std::unique_ptr<StoreServer> server;
    if (l.node == 0) server = host_store(l);
    Attempt attempt(l, number, server ? server->port() : l.master_port, deadline, signals, guard);
    const int code = attempt.run();
    if (code == 0) return 0;
    write_all(2, attempt.report());
    if (attempt.stopped() || code == kPreempted || deadline.passed() || number == l.max_restarts) return code;
    write_all(2, concat("ringtape: restart ", number + 1, " of ", l.max_restarts, "\n"));
  }
}

}  // namespace ringtape::comm
