// Transports whose ranks die, stop, leave or never come.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

#include <sstream>
#include <thread>

#include "comm/store/socket.h"
#include "comm/transport/host.h"
#include "comm/transport/tcp_mesh.h"
#include "tests/support/processes.h"
#include "tests/support/transport_ranks.h"

namespace ringtape::comm {
namespace {

using namespace test;

class TransportFailure : public testing::TestWithParam<const char*> {};

// Rank 1 kills itself during the third message around the ring; the timeout of the others is a minute.
TEST_P(TransportFailure, AKilledRankIsNamed) {
  const auto files = ringtape::test::shared_memory();
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
  EXPECT_EQ(ringtape::test::shared_memory(), files);
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
  EXPECT_MENTIONS(ends[0].error,
                  std::string_view(GetParam()) == "shm" ? "rank 1 has left the group" : "rank 1 closed the connection");
}

TEST_P(TransportFailure, AMissingRankIsNamedAtTheOpening) {
  const auto ends = run_processes(2, Seconds(0.5), [](const Context& context) {
    if (context.rank == 0) make_transport(GetParam(), context);
  });
  EXPECT_MENTIONS(ends[0].error, "by the deadline");
}

TEST_P(TransportFailure, NothingStaysOpen) {
  const auto files = ringtape::test::shared_memory();
  on_processes(1, [](const Context& outer) {
    const size_t before = open_fds();
    for (int round = 0; round < 3; ++round)
      on_threads(3, [](const Context& context) {
        const auto t = make_transport(GetParam(), context);
        pass_around(*t, {1, 100000}, true);
      });
    EXPECT_EQ(open_fds(), before) << outer.rank;
  });
  EXPECT_EQ(ringtape::test::shared_memory(), files);
}

// Limits the number of descriptors, so that the limit cannot be raised either.
void limit_descriptors(rlim_t count) {
  const rlimit limit{count, count};
  RT_CHECK(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

TEST(TcpMesh, ARankWithTooFewDescriptorsSaysSoBeforeItOpensAny) {
  const auto began = Clock::now();
  const auto ends = run_processes(3, Seconds(1.5), [](const Context& context) {
    if (context.rank == 2) limit_descriptors(40);
    connect_mesh(context, 16, Deadline(context.timeout));
  });
  EXPECT_LT(Seconds(Clock::now() - began).count(), 10);
  for (const auto& end : ends) EXPECT_EQ(WEXITSTATUS(end.status), 2);
  EXPECT_MENTIONS(ends[2].error, "tcp: rank 2 needs 32 connections, 16 to each of 2 ranks: ");
  EXPECT_MENTIONS(ends[2].error, "but the limit is 40");
  EXPECT_MENTIONS(ends[2].error, "(ulimit -n)");
}

// Another thread takes all remaining descriptors while the rank waits for connections: then each new connection is seen
// but cannot be accepted.
TEST(TcpMesh, ARankThatRunsOutOfDescriptorsNamesTheLimit) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP()
      << "UndefinedBehaviorSanitizer opens a pipe to look at an object, and takes one that it cannot look at for none";
#endif
  const auto began = Clock::now();
  const auto ends = run_processes(3, Seconds(4), [](const Context& context) {
    if (context.rank != 2) {
      context.store->set(concat("tcp/host/", context.rank), concat(host_identity("net"), " 4"));
      if (context.rank == 0) context.store->set("tcp/secret", "which rank 2 waits for");
      context.store->wait("taken", Deadline(context.timeout));
      std::this_thread::sleep_for(Seconds(0.1));
      std::istringstream in(context.store->wait("tcp/2", Deadline(context.timeout)));
      std::string host;
      int port = 0;
      in >> host >> port;
      const Fd connection = connect_to(host, port, Deadline(context.timeout));
      context.store->wait("over", Deadline(kTimeout));
      return;
    }
    limit_descriptors(200);
    std::vector<Fd> taken;
    const auto take_all = [&] {
      for (int fd; (fd = ::fcntl(0, F_DUPFD_CLOEXEC, 0)) >= 0;) taken.emplace_back(fd);
    };
    std::thread beside([&] {
      context.store->wait("tcp/2", Deadline(context.timeout));
      std::this_thread::sleep_for(Seconds(0.1));
      take_all();
      taken.resize(taken.size() - 8);  // the store needs some
      context.store->set("taken", "1");
      take_all();
    });
    const std::string cause = message_of<CommError>([&] { connect_mesh(context, 4, Deadline(context.timeout)); });
    beside.join();
    taken.clear();
    context.store->set("over", "1");
    throw CommError(cause);
  });
  EXPECT_LT(Seconds(Clock::now() - began).count(), 10);
  EXPECT_EQ(WEXITSTATUS(ends[2].status), 2);
  EXPECT_MENTIONS(ends[2].error, "tcp: rank 2 cannot accept a connection, 8 are missing: Too many open files");
  EXPECT_MENTIONS(ends[2].error, "the limit of this process is 200");
}

// Unknown connections to a rank that waits for others do not delay it: it ends at its deadline, and when the job fails.
TEST(TcpMesh, AFloodOfStrangersDoesNotHoldUpTheDeadline) {
  for (const bool fails : {false, true}) {
    const auto began = Clock::now();
    const auto ends = run_processes(2, fails ? kTimeout : Seconds(0.7), [fails](const Context& context) {
      if (context.rank == 1) {
        std::thread later([&] {
          std::this_thread::sleep_for(Seconds(0.5));
          if (fails) context.failure->raise("somebody has failed");
        });
        const std::string cause = message_of<CommError>([&] { connect_mesh(context, 1, Deadline(context.timeout)); });
        later.join();
        context.store->set("over", "1");
        throw CommError(cause);
      }
      context.store->set("tcp/host/0", host_identity("net") + " 1");
      context.store->set("tcp/secret", "none");
      std::istringstream in(context.store->wait("tcp/1", Deadline(kTimeout)));
      std::string host;
      int port = 0;
      in >> host >> port;
      while (!context.store->get("over")) {
        try {
          for (int i = 0; i < 20; ++i) connect_to(host, port, Deadline(Seconds(1)));
        } catch (const CommError&) {  // it has ended
        }
      }
    });
    EXPECT_LT(Seconds(Clock::now() - began).count(), 10);
    EXPECT_MENTIONS(ends[1].error,
                    fails ? "somebody has failed" : "tcp: rank 1 waited 0.7 s for 1 connection from rank 0");
  }
}

INSTANTIATE_TEST_SUITE_P(Each, TransportFailure, testing::Values("shm", "tcp"),
                         [](const auto& name) { return std::string(name.param); });

}  // namespace
}  // namespace ringtape::comm
