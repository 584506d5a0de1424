#include "comm/launch/launch.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>

#include "comm/launch/attempt.h"
#include "comm/launch/display.h"
#include "comm/launch/elastic.h"
#include "comm/store/tcp_store.h"
#include "comm/store/token.h"
#include "core/env.h"
#include "core/limits.h"

namespace ringtape::comm {

namespace {

constexpr const char* kError = "ringtape: error: ";

// While this object lives, descendant processes whose parent has died become children of this process.
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
  const bool for_others = l.nodes > 1 || (l.elastic && l.master_addr != Launch().master_addr);
  try {
    return std::make_unique<StoreServer>(StoreServer::Options{.token = l.token,
                                                              .name = concat("ringtape launch (pid ", ::getpid(), ")"),
                                                              .host = for_others ? "" : "127.0.0.1",
                                                              .port = l.master_port,
                                                              .heartbeat = Seconds(env::heartbeat())});
  } catch (const CommError& e) {
    throw CommError(concat(e.what(), "; choose another port with --master-port"));
  }
}

// Checks the number of descriptors: for the pipes and log of each rank here, and the store's connections to the ranks
// of all nodes.
void check_descriptors(const Launch& l) {
  constexpr int64_t kOfARank = 4, kSpare = 64;
  raise_descriptor_limit();
  const int64_t connections = l.node == 0 && !l.joins ? l.ranks() : 0;
  const std::string lack = lack_of_descriptors(kOfARank * l.local_size + connections + kSpare);
  RT_CHECK_AS(IoError, lack.empty(), "launch: ", l.local_size, " ranks here, of ", l.ranks(), ": ", lack);
}

}  // namespace

int launch(const Launch& l) {
  constexpr Seconds kReading(3), kLeaving(1);  // at the end: time for the reader of this process's output
  constexpr Seconds kBeginning(60);            // for the first keys of its store
  check_descriptors(l);
  const Subreaper subreaper;
  Signals signals;
  Guard guard;
  Display display;
  const auto told_to_end = [&signals, told = false]() mutable {
    while (const auto signal = signals.next())
      told = told || (*signal != SIGCHLD && *signal != SIGUSR1 && *signal != SIGUSR2);
    return told;
  };
  const Deadline deadline(l.timeout.count() > 0 ? l.timeout : Seconds(1e8));
  for (int number = 0;; ++number) {
    std::unique_ptr<StoreServer> server;
    if (l.node == 0 && !l.joins) server = host_store(l);
    const auto own_store = [&] { return tcp_store({"127.0.0.1", server->port(), l.token}, Deadline(kBeginning)); };
    if (server && l.elastic) begin_job(*own_store(), l);
    Attempt attempt(l, number, server ? server->port() : l.master_port, deadline, signals, guard, display);
    const int code = attempt.run();
    if (server && l.elastic) await_latecomers(*own_store());
    const bool ends = attempt.stopped() || deadline.passed();
    if (code != 0) display.write(2, attempt.report());
    if (const std::string lost = attempt.lost(); !lost.empty()) display.write(2, concat(kError, lost, "\n"));
    const bool usage = l.command[0].empty() && code == kWrongUsage;  // another program's code may mean anything
    if (ends || code == 0 || code == kPreempted || usage || l.elastic || number == l.max_restarts) {
      display.finish(ends ? kLeaving : kReading, told_to_end);
      const std::string lost = display.lost();
      if (!lost.empty()) std::fprintf(stderr, "%s%s\n", kError, lost.c_str());
      return code == 0 && !(lost.empty() && attempt.lost().empty()) ? kLostOutput : code;
    }
    display.write(2, concat("ringtape: restart ", number + 1, " of ", l.max_restarts, "\n"));
  }
}

}  // namespace ringtape::comm
