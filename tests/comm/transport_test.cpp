// Transports: the guarantees of comm/transport.h, between processes and, where possible, between threads.
#include <numeric>

#include "tests/support/transport_ranks.h"

namespace ringtape::comm {
namespace {

using namespace test;

class Transports : public testing::TestWithParam<std::tuple<const char*, bool>> {
 protected:
  // Runs f on n ranks that are processes or threads, depending on the parameter.
  void run(int n, const std::function<void(Transport&)>& f) {
    const auto [name, processes] = GetParam();
    const auto open = [&f, name = name](const Context& context) { f(*make_transport(name, context)); };
    processes ? on_processes(n, open) : on_threads(n, open);
  }
};

TEST_P(Transports, PassMessagesOfAllSizes) {
  for (const int n : {2, 3})
    run(n, [](Transport& t) {
      pass_around(t, kSizes, false);
      pass_around(t, kSizes, true);
    });
}

TEST_P(Transports, PassAMessageThatIsLargerThanAnyBuffer) {
  run(2, [](Transport& t) { pass_around(t, {size_t(std::get<1>(GetParam()) ? 64 : 4) << 20}, false); });
}

TEST_P(Transports, KeepManyMessagesInOrder) {
  run(2, [](Transport& t) { many_tickets(t); });
  run(4, [](Transport& t) { many_tickets(t); });
}

TEST_P(Transports, NameBothCallsWhenTheyDiffer) {
  const auto check = [](const Context& context) {
    const auto t = make_transport(std::get<0>(GetParam()), context);
    const std::string text = message_of<CommError>([&] {
      uint8_t out[16] = {}, in[16];
      t->begin(operation(t->rank() == 0 ? 1000 : 2000, 4), Deadline(kTimeout));
      t->exchange({send_to(1 - t->rank(), out, 16), recv_from(1 - t->rank(), in, 16)});
    });
    EXPECT_MENTIONS(text, "all_reduce #4 (sum, u8, 1,000 elements)");
    EXPECT_MENTIONS(text, "all_reduce #4 (sum, u8, 2,000 elements)");
  };
  if (std::get<1>(GetParam())) return on_processes(2, check);
  const auto store = memory_store();
  const auto failure = std::make_shared<Failure>();
  std::thread other([&] { check({1, 2, store, failure, kTimeout}); });
  check({0, 2, store, failure, kTimeout});
  other.join();
}

TEST_P(Transports, CanBeOpenedForAnotherGroup) {
  if (std::get<0>(GetParam()) == std::string_view("threads")) return;  // finds its group by the store object
  run(3, [](Transport& t) {
    if (t.rank() == 1) return;
    Context context = t.context();
    context.store = prefix_store(context.store, "part");
    context.rank = t.rank() / 2;
    context.size = 2;
    const auto part = t.open(context);
    pass_around(*part, {1, 5000}, true);
  });
}

TEST_P(Transports, CloseWhileOthersAreStillBusy) {
  if (std::get<0>(GetParam()) == std::string_view("threads")) return;
  run(3, [](Transport& t) {
    for (int round = 0; round < 20; ++round) {
      Context context = t.context();
      context.store = prefix_store(context.store, concat("round", round));
      const auto again = t.open(context);
      pass_around(*again, {8}, round % 2);
    }
  });
}

std::string world_name(const testing::TestParamInfo<std::tuple<const char*, bool>>& world) {
  return concat(std::get<0>(world.param), std::get<1>(world.param) ? "_processes" : "_threads");
}
INSTANTIATE_TEST_SUITE_P(Each, Transports,
                         testing::Values(std::tuple("threads", false), std::tuple("shm", false),
                                         std::tuple("shm", true), std::tuple("tcp", false), std::tuple("tcp", true)),
                         world_name);

TEST(TransportShare, LetsRanksReadAndWriteEachOthersMemory) {
  on_threads(3, [](const Context& c) { share_and_fence(*make_transport("shm", c), 100); });
  for (const int n : {2, 4}) on_processes(n, [](const Context& c) { share_and_fence(*make_transport("shm", c), 200); });
}

TEST(TransportShare, GivesNothingIfOneRankCannot) {
  on_processes(3, [](const Context& c) {
    const auto t = make_transport("shm", c);
    const size_t bytes = 1 << 20;
    const Buffer buffer(*t, bytes, t->rank() != 1);
    t->begin(operation(1, 1), Deadline(kTimeout));
    EXPECT_TRUE(t->share(buffer.get(), bytes).empty());
    share_and_fence(*t, 3);
  });
}

// A caller recognises a copy because its own address differs from the buffer's.
TEST(TransportShare, CopiesSmallBuffersOfOtherMemory) {
  on_processes(2, [](const Context& c) {
    const auto t = make_transport("shm", c);
    int own = t->rank() + 5;
    t->begin(operation(4, 1), Deadline(kTimeout));
    const std::vector<void*> all = t->share(&own, sizeof own);
    ASSERT_EQ(all.size(), 2u);
    EXPECT_NE(all[size_t(t->rank())], &own);
    EXPECT_EQ(*static_cast<int*>(all[size_t(1 - t->rank())]), 6 - t->rank());
    t->fence();
  });
}

TEST(TransportShare, NamesBothCallsWhenTheyDiffer) {
  on_processes(2, [](const Context& c) {
    const auto t = make_transport("shm", c);
    int own = 0;
    t->begin(operation(t->rank() + 1, 3), Deadline(kTimeout));
    const std::string text = message_of<CommError>([&] { t->share(&own, sizeof own); });
    EXPECT_MENTIONS(text, "all_reduce #3 (sum, u8, 1 element)");
    EXPECT_MENTIONS(text, "all_reduce #3 (sum, u8, 2 elements)");
  });
}

TEST(TransportShare, GivesMemoryBack) {
  on_processes(1, [](const Context& c) {
    const auto t = make_transport("shm", c);
    void* first = nullptr;
    for (const size_t bytes : {size_t(100), size_t(5) << 20, size_t(100), size_t(5) << 20}) {
      const Buffer buffer(*t, bytes, true);
      if (!first) first = buffer.get();
      EXPECT_LE(buffer.get() - static_cast<uint8_t*>(first), 8 << 20);  // memory is reused
      EXPECT_EQ(std::accumulate(buffer.get(), buffer.get() + bytes, 0), 0);
      std::fill_n(buffer.get(), bytes, uint8_t(1));
    }
  });
}

TEST(TransportNames, OfThreadsAreNotForProcesses) {
  const auto ends = run_processes(2, kTimeout, [](const Context& c) { make_transport("threads", c); });
  EXPECT_EQ(ends[1].error,
            "threads: the ranks of this group must be threads of one process, but are processes; use shm");
}

TEST(TransportNames, AreListed) {
  const Context context{0, 1, memory_store(), std::make_shared<Failure>(), kTimeout};
  EXPECT_EQ(make_transport("auto", context)->name(), "shm");
  EXPECT_MENTIONS(message_of<UsageError>([&] { make_transport("tpc", context); }),
                  "unknown transport 'tpc'; did you mean tcp?");
  EXPECT_MENTIONS(message_of<UsageError>([&] { make_transport("pigeon", context); }),
                  "unknown transport 'pigeon'; available: auto threads shm tcp mpi nccl ipc p2p");
}

}  // namespace
}  // namespace ringtape::comm
