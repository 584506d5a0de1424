// Transports whose ranks die, stop, leave or never come.
#include <signal.h>

#include "tests/transport_ranks.h"

namespace ringtape::comm {
namespace {

using namespace test;

class TransportFailure : public testing::TestWithParam<const char*> {};

// Rank 1 kills itself in the third of the messages that go around; the others have a minute to wait for.
TEST_P(TransportFailure, AKilledRankIsNamed) {
  const auto files = shared_files();
  const auto began = Clock::now();
  const auto ends = run_processes(3, kTimeout, [](const Context& context) {
    const auto t = make_transport(GetParam(), context);
    for (uint64_t i = 1; i <= 3; ++i) {
      uint8_t out[64] = {}, in[64];
      t->begin(operation(64, i), Deadline(kTimeout));
      if (i == 3 && t->rank() == 1) ::raise(SIGKILL);
      t->exchange({send_to((t->rank() + 1) % 3, out, 64), recv_from((t->rank() + 2) % 3, in, 64)});
      if (i == 3) t->exchange({send_to((t->rank() + 2) % 3, out, 64), recv_from((t->rank() + 1) % 3, in, 64)});
    }
  });
  EXPECT_LT(Seconds(Clock::now() - began).count(), 20);  // of 60
  EXPECT_TRUE(WIFSIGNALED(ends[1].status));
  for (const size_t r : {size_t(0), size_t(2)}) {
    EXPECT_EQ(WEXITSTATUS(ends[r].status), 2);
    EXPECT_MENTIONS(ends[r].error, "rank 1");
    EXPECT_MENTIONS(ends[r].error, std::string_view(GetParam()) == "shm" ? "died" : "closed the connection");
    EXPECT_MENTIONS(ends[r].error, "all_reduce #3");
  }
  EXPECT_EQ(shared_files(), files);
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);  // no child is left
}

TEST_P(TransportFailure, AStoppedRankIsNamedAtTheDeadline) {
  const auto ends = run_processes(
      2, Seconds(1),
      [](const Context& context) {
        const auto t = make_transport(GetParam(), context);
        if (t->rank() == 1) ::raise(SIGSTOP);
        uint8_t out[64] = {}, in[64];
        t->begin(operation(64, 9), Deadline(Seconds(1)));
        t->exchange({send_to(1 - t->rank(), out, 64), recv_from(1 - t->rank(), in, 64)});
      },
      [](const std::vector<pid_t>& pids) {
        siginfo_t info{};
        ::waitid(P_PID, id_t(pids[0]), &info, WEXITED | WNOWAIT);
        ::kill(pids[1], SIGKILL);
      });
  EXPECT_EQ(WEXITSTATUS(ends[0].status), 2);
  EXPECT_MENTIONS(ends[0].error, "rank 0 waited 1 s for rank 1 in all_reduce #9");
}

TEST_P(TransportFailure, ARankThatLeavesEarlyIsNamed) {
  const auto ends = run_processes(2, kTimeout, [](const Context& context) {
    const auto t = make_transport(GetParam(), context);
    if (t->rank() == 1) return;
    uint8_t in[64];
    t->begin(operation(64, 2), Deadline(kTimeout));
    t->exchange({recv_from(1, in, 64)});
  });
  EXPECT_EQ(ends[1].status, 0);
  EXPECT_MENTIONS(ends[0].error, std::string_view(GetParam()) == "shm" ? "rank 1 has left the group" : "rank 1 closed the connection");
}

TEST_P(TransportFailure, AMissingRankIsNamedAtTheOpening) {
  const auto ends = run_processes(2, Seconds(0.5), [](const Context& context) {
    if (context.rank == 0) make_transport(GetParam(), context);
  });
  EXPECT_MENTIONS(ends[0].error, "by the deadline");
}

TEST_P(TransportFailure, NothingStaysOpen) {
  const auto files = shared_files();
  on_processes(1, [](const Context& outer) {
    const size_t before = open_fds();
    for (int round = 0; round < 3; ++round)
      on_threads(3, [](const Context& context) {
        const auto t = make_transport(GetParam(), context);
        pass_around(*t, {1, 100000}, true);
      });
    EXPECT_EQ(open_fds(), before) << outer.rank;
  });
  EXPECT_EQ(shared_files(), files);
}

INSTANTIATE_TEST_SUITE_P(Each, TransportFailure, testing::Values("shm", "tcp"), [](const auto& name) { return std::string(name.param); });

}  // namespace
}  // namespace ringtape::comm
