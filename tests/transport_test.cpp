// Transports: what each promises in comm/transport.h, between processes and, where it can, between threads.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <filesystem>
#include <numeric>
#include <sstream>

#include "comm/transport/transports.h"
#include "tests/support.h"
#include "tests/mpi_ranks.h"
#include "tests/process_ranks.h"

namespace ringtape::comm {
namespace {

using test::message_of;
using test::on_processes;
using test::run_processes;

#define EXPECT_MENTIONS(text, part) EXPECT_NE(std::string(text).find(part), std::string::npos) << text

constexpr Seconds kTimeout(60);

// Runs f on n threads, each with the context of its rank.
void on_threads(int n, const std::function<void(const Context&)>& f) {
  const auto store = memory_store();
  const auto failure = std::make_shared<Failure>();
  std::vector<std::thread> ranks;
  for (int r = 0; r < n; ++r)
    ranks.emplace_back([&, r] {
      try {
        f({r, n, store, failure, kTimeout});
      } catch (const std::exception& e) {
        failure->raise(e.what());
      }
    });
  for (std::thread& t : ranks) t.join();
  EXPECT_EQ(failure->cause(), "");
}

Operation operation(int64_t count, uint64_t sequence = 1) {
  return {.kind = Collective::all_reduce, .dtype = DType::u8, .count = count, .sequence = sequence};
}

uint8_t byte_of(int rank, size_t message, size_t i) { return uint8_t(rank * 31 + int(message % 251) * 7 + int(i % 251) + int(i >> 12)); }

size_t open_fds() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return size_t(std::distance(begin(all), end(all)));
}

std::vector<std::string> shared_files() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) names.push_back(entry.path());
  return names;
}

// A buffer of the transport's or of the heap.
struct Buffer {
  Buffer(Transport& t, size_t bytes, bool shared) : memory(shared ? t.allocate(bytes) : std::make_shared<uint8_t[]>(bytes)) {}
  uint8_t* get() const { return static_cast<uint8_t*>(memory.get()); }
  std::shared_ptr<void> memory;
};

// Every rank sends to the next and receives from the previous, messages of these sizes one by one.
void pass_around(Transport& t, const std::vector<size_t>& sizes, bool shared) {
  const int next = (t.rank() + 1) % t.size(), previous = (t.rank() + t.size() - 1) % t.size();
  for (size_t m = 0; m < sizes.size(); ++m) {
    const Buffer out(t, sizes[m], shared), in(t, sizes[m], shared);
    for (size_t i = 0; i < sizes[m]; ++i) out.get()[i] = byte_of(t.rank(), m, i);
    t.begin(operation(int64_t(sizes[m]), m + 1), Deadline(kTimeout));
    t.exchange({send_to(next, out.get(), sizes[m]), recv_from(previous, in.get(), sizes[m])});
    size_t wrong = 0;
    for (size_t i = 0; i < sizes[m]; ++i) wrong += in.get()[i] != byte_of(previous, m, i);
    ASSERT_EQ(wrong, 0u) << t.name() << ", " << sizes[m] << " bytes";
  }
}

const std::vector<size_t> kSizes = {0, 1, 63, 64, 65, 4095, 4096, 4097, 100003,
                                    (256 << 10) - 64, 256 << 10, (256 << 10) + 1, (1 << 20) + 7};

// Many messages that are all on their way before the first is waited for; even ones go to the next rank, odd ones to the previous.
void many_tickets(Transport& t) {
  constexpr size_t kMessages = 150;
  const int next = (t.rank() + 1) % t.size(), previous = (t.rank() + t.size() - 1) % t.size();
  std::vector<std::vector<uint8_t>> out, in;
  std::vector<Transport::Ticket> tickets;
  t.begin(operation(1), Deadline(kTimeout));
  for (size_t m = 0; m < kMessages; ++m) {
    const size_t bytes = m * 977 % 20011;
    out.emplace_back(bytes);
    in.emplace_back(bytes);
    for (size_t i = 0; i < bytes; ++i) out[m][i] = byte_of(t.rank(), m, i);
  }
  for (size_t m = 0; m < kMessages; ++m) {
    const Transfer both[] = {send_to(m % 2 ? previous : next, out[m].data(), out[m].size()),
                             recv_from(m % 2 ? next : previous, in[m].data(), in[m].size())};
    tickets.push_back(t.start(both));
  }
  for (size_t m = 0; m < kMessages; ++m) {
    t.finish(tickets[m]);
    size_t wrong = 0;
    for (size_t i = 0; i < in[m].size(); ++i) wrong += in[m][i] != byte_of(m % 2 ? next : previous, m, i);
    ASSERT_EQ(wrong, 0u) << t.name() << ", message " << m;
  }
}

// Each rank adds up what all share, and then writes to all of them.
void share_and_fence(Transport& t, int rounds) {
  const int n = t.size();
  const std::shared_ptr<void> reachable = t.allocate(4096);
  std::vector<int> heap(1024);
  for (int round = 1; round <= rounds; ++round) {
    int* const own = round % 2 ? static_cast<int*>(reachable.get()) : heap.data();
    for (int i = 0; i < 8; ++i) own[i] = round * (t.rank() + 1) + i;
    t.begin(operation(8, uint64_t(round)), Deadline(kTimeout));
    const std::vector<void*> all = t.share(own, 32);
    ASSERT_EQ(int(all.size()), n);
    int sum = 0;
    for (void* data : all) sum += static_cast<int*>(data)[round % 8];
    ASSERT_EQ(sum, round * n * (n + 1) / 2 + n * (round % 8));
    t.fence();
    static_cast<int*>(all[size_t((t.rank() + 1) % n)])[0] = round;
    t.fence();
    ASSERT_EQ(static_cast<int*>(all[size_t(t.rank())])[0], round);
  }
}

class Transports : public testing::TestWithParam<std::tuple<const char*, bool>> {
 protected:
  // f on n ranks that are processes or threads, as the parameter says.
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
  if (std::get<0>(GetParam()) == std::string_view("threads")) return;  // finds its group by the store's object
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
                         testing::Values(std::tuple("threads", false), std::tuple("shm", false), std::tuple("shm", true),
                                         std::tuple("tcp", false), std::tuple("tcp", true)),
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

// What makes a copy the caller's: its own address differs from the buffer's.
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
      EXPECT_LE(buffer.get() - static_cast<uint8_t*>(first), 8 << 20);  // places are used again
      EXPECT_EQ(std::accumulate(buffer.get(), buffer.get() + bytes, 0), 0);
      std::fill_n(buffer.get(), bytes, uint8_t(1));
    }
  });
}

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

TEST(TransportTcp, SharesLargeMessagesBetweenSockets) {
  on_processes(3, [](const Context& context) {
    ::setenv("RINGTAPE_TCP_SOCKETS", "3", 1);
    const auto t = make_transport("tcp", context);
    EXPECT_GE(open_fds(), 3u + 2 * 3);
    pass_around(*t, {1, 256 << 10, (768 << 10) - 1, (768 << 10) + 1, 5000011}, false);
    many_tickets(*t);
  });
}

TEST(TransportTcp, TheNumberOfSocketsIsTheSame) {
  const auto ends = run_processes(2, Seconds(5), [](const Context& context) {
    ::setenv("RINGTAPE_TCP_SOCKETS", context.rank ? "2" : "4", 1);
    make_transport("tcp", context);
  });
  for (const auto& end : ends) EXPECT_MENTIONS(end.error, "RINGTAPE_TCP_SOCKETS");
}

// A store whose secret a test has set before.
class KeepsSecret : public Store {
 public:
  explicit KeepsSecret(std::shared_ptr<Store> store) : store_(std::move(store)) {}
  void set(const std::string& key, const std::string& value) override {
    if (key != "tcp/secret") store_->set(key, value);
  }
  std::optional<std::string> get(const std::string& key) override { return store_->get(key); }
  std::string set_once(const std::string& key, const std::string& value) override { return store_->set_once(key, value); }
  std::optional<Entry> wait_any(std::span<const std::string> keys, Deadline deadline) override { return store_->wait_any(keys, deadline); }
  int64_t add(const std::string& key, int64_t amount) override { return store_->add(key, amount); }
  void erase(const std::string& key) override { store_->erase(key); }

 private:
  const std::shared_ptr<Store> store_;
};

// Some who connect to a rank's port: one says nothing, one leaves, one talks nonsense. They neither get in nor keep the ranks up.
TEST(TransportTcp, StrangersStayOutside) {
  const auto store = memory_store();
  const auto failure = std::make_shared<Failure>();
  std::thread one([&] {
    const auto t = make_transport("tcp", {1, 2, store, failure, kTimeout});
    pass_around(*t, {100}, false);
  });
  store->set("tcp/host/0", store->wait("tcp/host/1", Deadline(kTimeout)));  // rank 1 now waits for rank 0 at its port
  store->set("tcp/secret", "a secret");
  std::istringstream in(store->wait("tcp/1", Deadline(kTimeout)));
  std::string host;
  int port = 0;
  in >> host >> port;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(uint16_t(port));
  ASSERT_EQ(::inet_pton(AF_INET, host.c_str(), &address.sin_addr), 1);
  std::vector<int> strangers;
  for (const std::string& said : {std::string(), std::string(1, 'x'), std::string(4096, 'y'), std::string(sizeof(int), '\0')}) {
    strangers.push_back(::socket(AF_INET, SOCK_STREAM, 0));
    ASSERT_EQ(::connect(strangers.back(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    ASSERT_EQ(::send(strangers.back(), said.data(), said.size(), MSG_NOSIGNAL), ssize_t(said.size()));
  }
  char challenge[32], more;
  EXPECT_EQ(::recv(strangers[2], challenge, sizeof challenge, MSG_WAITALL), 32);
  EXPECT_LE(::recv(strangers[2], &more, 1, 0), 0);  // put out at once
  ::close(strangers[1]);
  std::thread zero([&] {
    const auto t = make_transport("tcp", {0, 2, std::make_shared<KeepsSecret>(store), failure, kTimeout});
    pass_around(*t, {100}, false);
  });
  zero.join();
  one.join();
  for (const size_t i : {size_t(0), size_t(2), size_t(3)}) ::close(strangers[i]);
}

// One of the ranks that mpirun starts for the test below.
TEST(TransportMpi, DISABLED_Rank) {
  test::as_mpi_rank(Seconds(20), [](const Context& context) {
    const int rank = context.rank, size = context.size;
    {
      const auto t = make_transport("mpi", context);
      pass_around(*t, kSizes, false);
      many_tickets(*t);
      if (rank % 2 == 1) {  // two of the four
        const auto part = t->open({rank / 2, size / 2, prefix_store(context.store, "part"), context.failure, context.timeout});
        pass_around(*part, {1, 100000}, false);
      }
    }
    const auto t = make_transport("mpi", {rank, size, prefix_store(context.store, "again"), context.failure, context.timeout});
    const std::string text = message_of<CommError>([&] {
      uint8_t out[16] = {}, in[16];
      t->begin(operation(rank == 0 ? 1000 : 2000, 4), Deadline(Seconds(1)));
      t->exchange({send_to((rank + 1) % size, out, 16), recv_from((rank + size - 1) % size, in, 16)});
      t->exchange({recv_from((rank + 1) % size, in, 16)});
    });
    if (rank < 2) {
      EXPECT_MENTIONS(text, "(sum, u8, 1,000 elements)");
      EXPECT_MENTIONS(text, "(sum, u8, 2,000 elements)");
    } else {
      EXPECT_MENTIONS(text, "s for rank");
    }
  });
}

TEST(TransportMpi, WorksUnderMpirun) {
  if (!test::has_mpirun()) GTEST_SKIP() << "there is no mpirun (apt-get install openmpi-bin)";
  test::run_under_mpirun(4, "TransportMpi");
}

TEST(TransportMpi, SaysHowManyRanksMpiKnows) {
  on_processes(1, [](const Context& context) {
    Context two = context;
    two.size = 2;
    const std::string text = message_of<CommError>([&] { make_transport("mpi", two); });
    EXPECT_MENTIONS(text, text.find("libmpi.so.40") == std::string::npos ? "start them with mpirun -n 2" : "apt-get install libopenmpi3");
  });
}

TEST(TransportNames, AreListed) {
  const Context context{0, 1, memory_store(), std::make_shared<Failure>(), kTimeout};
  EXPECT_EQ(make_transport("auto", context)->name(), "shm");
  EXPECT_MENTIONS(message_of<UsageError>([&] { make_transport("tpc", context); }), "unknown transport 'tpc'; there are auto, threads, shm, tcp, mpi");
}

}  // namespace
}  // namespace ringtape::comm
