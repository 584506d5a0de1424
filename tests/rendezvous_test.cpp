// How processes become a job, and how all of them learn why it ends.
#include "comm/rendezvous.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "comm/report.h"
#include "comm/store/socket.h"
#include "comm/store/tcp_store.h"
#include "comm/transport/transports.h"
#include "tests/job_ranks.h"
#include "tests/support.h"

namespace ringtape::comm {
namespace {

using namespace test;
using testing::Test;
namespace fs = std::filesystem;

// Waits for the failure of the job.
std::string cause_of(const Job& job) {
  for (const Deadline deadline{Seconds(kLong)}; !job.failure->raised() && !deadline.passed();) std::this_thread::sleep_for(Seconds(0.001));
  return job.failure->cause();
}

std::string self(int rank, const Ranks& ranks) { return concat("rank ", rank, " (pid ", ranks[rank].pid(), " on ", host_name(), ")"); }

// All ranks meet, exchange a value, and leave nothing behind.
void expect_meets(const Meeting& meeting) {
  Ranks ranks(4, [&](int r) {
    const Job job = join(place_on_host(r, 4), meeting, Seconds(kLong));
    job.store->set(concat("from ", r), std::to_string(r * r));
    std::string all;
    for (int i = 0; i < 4; ++i) all += job.store->wait(concat("from ", i), Deadline(Seconds(kLong))) + " ";
    return all + job.failure->cause();
  });
  for (int r = 0; r < 4; ++r) EXPECT_EQ(ranks.result(r), "0 1 4 9 ");
}

TEST(Rendezvous, MeetsOnOneHostWithoutAPort) {
  const TemporaryFolder temporary;
  const std::string& folder = temporary.path();
  expect_meets({.folder = folder});
  EXPECT_TRUE(fs::is_empty(folder));
}

TEST(Rendezvous, MeetsInAFolder) {
  const TemporaryFolder temporary;
  const std::string folder = temporary.path() + "/job";
  expect_meets({.store = folder});
  EXPECT_FALSE(fs::exists(folder));
}

// A store that outlives all ranks, as that of a launcher does.
class Launcher {
 public:
  Meeting meeting() const { return {.store = concat("127.0.0.1:", port_of(listening_)), .token = kToken}; }
  std::shared_ptr<Store> store() const { return tcp_store({"127.0.0.1", port_of(listening_), kToken}, Deadline(Seconds(kLong))); }

 private:
  static constexpr const char* kToken = "the launcher's token";
  const Fd listening_ = listen_on("127.0.0.1", 0);
  const Child process_{[this] {
    const StoreServer server({.token = kToken, .listening = ::dup(listening_.get())});
    ::pause();
  }};
};

TEST(Rendezvous, MeetsThroughALauncher) { expect_meets(Launcher().meeting()); }

TEST(Rendezvous, MeetsAtAnAddressWithAToken) {
  const int port = port_of(Fd(listen_on("127.0.0.1", 0)));
  Ranks ranks(2, [&](int r) {
    Place place = place_on_host(r, 2);
    place.one_host = false;
    place.host = "127.0.0.1";
    place.port = port;
    return std::to_string(join(place, {.token = "sixteen letters."}, Seconds(kLong)).size);
  });
  EXPECT_EQ(ranks.result(0), "2");
  EXPECT_EQ(ranks.result(1), "2");
}

TEST(Rendezvous, ReadsTheEnvironment) {
  const TemporaryFolder temporary;
  const std::string& folder = temporary.path();
  Ranks ranks(3, [&](int r) {
    ::setenv("RANK", std::to_string(r).c_str(), 1);
    ::setenv("WORLD_SIZE", "3", 1);
    ::setenv("MASTER_ADDR", "127.0.0.1", 1);
    ::setenv("RINGTAPE_STORE", (folder + "/job").c_str(), 1);
    ::setenv("RINGTAPE_DUMP", (folder + "/dump.%r").c_str(), 1);
    const auto job = job_from_environment(Seconds(kLong));
    if (r == 1) job->failure->raise("rank 1 has had enough");
    return concat(job->rank, ' ', job->size, ' ', job->local_rank, ' ', cause_of(*job));
  });
  for (int r = 0; r < 3; ++r) EXPECT_EQ(ranks.result(r), concat(r, " 3 ", r, " rank 1 has had enough"));
  EXPECT_TRUE(fs::exists(folder + "/dump.1"));
  EXPECT_FALSE(job_from_environment());
}

// The ranks of a host are an island, where the launcher gave all hosts equally many, one host after the other.
TEST(Rendezvous, FindsTheIslands) {
  using Where = std::vector<std::pair<int, int>>;  // local rank and size, by rank
  const auto island = [](const Where& where) {
    const auto store = memory_store();
    std::vector<int> found(where.size());
    std::vector<std::thread> ranks;
    for (size_t r = 0; r < where.size(); ++r)
      ranks.emplace_back([&, r] {
        const Place place{"test", int(r), int(where.size()), where[r].first, where[r].second};
        found[r] = meet(*store, place, concat("rank ", r), Deadline(Seconds(kLong)));
      });
    for (std::thread& t : ranks) t.join();
    for (const int other : found) EXPECT_EQ(other, found[0]);
    return found[0];
  };
  EXPECT_EQ(island({{0, 1}}), 1);
  EXPECT_EQ(island({{0, 4}, {1, 4}, {2, 4}, {3, 4}}), 4);
  EXPECT_EQ(island({{0, 2}, {1, 2}, {0, 2}, {1, 2}}), 2);
  EXPECT_EQ(island({{0, 3}, {1, 3}, {2, 3}, {0, 3}, {1, 3}, {2, 3}}), 3);
  EXPECT_EQ(island({{0, 1}, {0, 1}, {0, 1}}), 1);
  EXPECT_EQ(island({{0, 2}, {0, 2}, {1, 2}, {1, 2}}), 1);          // by turns
  EXPECT_EQ(island({{0, 2}, {1, 2}, {0, 1}}), 1);                  // of different sizes
  EXPECT_EQ(island({{0, 2}, {1, 2}, {0, 1}, {0, 1}}), 1);
}

TEST(Rendezvous, AsksForWhatItNeedsOverSeveralHosts) {
  Place place = place_on_host(1, 2);
  place.one_host = false;
  EXPECT_TRUE(has(message_of<UsageError>([&] { join(place, {}, Seconds(1)); }), "set RINGTAPE_TOKEN"));
  EXPECT_TRUE(has(message_of<UsageError>([&] { join(place, {.token = "sixteen letters."}, Seconds(1)); }), "set MASTER_ADDR"));
  EXPECT_TRUE(has(message_of<UsageError>([&] { join(place, {.store = "127.0.0.1:1"}, Seconds(1)); }), "not RINGTAPE_TOKEN"));
  EXPECT_TRUE(has(message_of<UsageError>([&] { join(place, {.store = "here"}, Seconds(1)); }), "expected host:port"));
}

TEST(Rendezvous, RefusesAFolderThatOthersMayEnter) {
  const TemporaryFolder temporary;
  const std::string& folder = temporary.path();
  ::chmod(folder.c_str(), 0755);
  EXPECT_TRUE(has(message_of<CommError>([&] { join(place_on_host(0, 2), {.folder = folder}, Seconds(1)); }), "0700"));
}

TEST(Rendezvous, NamesMissingRanksOnEveryRank) {
  const TemporaryFolder temporary;
  const std::string& folder = temporary.path();
  Ranks ranks(2, [&](int r) { return concat(join(place_on_host(r * 2, 4), {.folder = folder}, Seconds(r ? kLong : 2)).size); });
  const std::string cause = ranks.result(0);
  EXPECT_TRUE(has(cause, "threw ranks 1, 3 of 4 did not come within ")) << cause;
  EXPECT_EQ(ranks.result(1), cause);
}

TEST(Rendezvous, NamesARankThatIsThereTwice) {
  const Launcher launcher;
  Ranks ranks(4, [&](int r) { return concat(join(place_on_host(r == 3 ? 1 : r, 4), launcher.meeting(), Seconds(kLong)).size); });
  const std::string cause = ranks.result(0);
  EXPECT_TRUE(has(cause, "threw rank 1 is there twice: ") && has(cause, self(1, ranks)) &&
              has(cause, concat("pid ", ranks[3].pid()))) << cause;
  for (int r = 1; r < 4; ++r) EXPECT_EQ(ranks.result(r), cause);
}

TEST(Rendezvous, NamesARankThatExpectsAnotherSize) {
  const Launcher launcher;
  Ranks ranks(3, [&](int r) {
    if (r == 2) launcher.store()->wait("job/size", Deadline(Seconds(kLong)));
    return concat(join(place_on_host(r, r == 2 ? 4 : 3), launcher.meeting(), Seconds(kLong)).size);
  });
  const std::string cause = concat("threw ", self(2, ranks), " expects 4 ranks, those who came before it 3; ",
                                   "start all with the same number");
  for (int r = 0; r < 3; ++r) EXPECT_EQ(ranks.result(r), cause);
}

// Each of four ranks joins, says so, and gives the cause that ends the job.
Ranks job_that_fails(const Meeting& meeting, const std::function<void(const Job&)>& then = [](const Job&) {}) {
  return Ranks(4, [meeting, then](int r) {
    const Job job = join(place_on_host(r, 4), meeting, Seconds(kLong));
    job.store->set(concat("is there ", r), "1");
    if (r == 0) {
      for (int i = 0; i < 4; ++i) job.store->wait(concat("is there ", i), Deadline(Seconds(kLong)));
      std::ofstream(meeting.folder + "/all are there") << "yes";
    }
    then(job);
    return cause_of(job);
  });
}
void wait_for_file(const std::string& path) {
  for (const Deadline deadline{Seconds(kLong)}; !fs::exists(path) && !deadline.passed();) std::this_thread::sleep_for(Seconds(0.002));
}

TEST(Death, OfARankIsNamedByAll) {
  const TemporaryFolder temporary;
  const std::string& folder = temporary.path();
  for (const std::string& store : {std::string(), folder + "/job"}) {
    fs::remove(folder + "/all are there");
    Ranks ranks = job_that_fails({.store = store, .folder = folder});
    wait_for_file(folder + "/all are there");
    ranks[2].kill(SIGKILL);
    for (const int r : {0, 1, 3}) EXPECT_EQ(ranks.result(r), self(2, ranks) + " died");
  }
}

TEST(Death, OfTheStoresHostIsNamedByAll) {
  const TemporaryFolder temporary;
  const std::string& folder = temporary.path();
  Ranks ranks = job_that_fails({.folder = folder});
  wait_for_file(folder + "/all are there");
  ranks[0].kill(SIGKILL);
  for (const int r : {1, 2, 3}) EXPECT_TRUE(has(ranks.result(r), self(0, ranks) + " died; it hosted the store at 127.0.0.1:"));
}

TEST(Death, ByStandingStillIsNamedByAll) {
  const TemporaryFolder temporary;
  const std::string& folder = temporary.path();
  for (const int victim : {3, 0}) {
    fs::remove(folder + "/all are there");
    Ranks ranks = job_that_fails({.folder = folder, .heartbeat = Seconds(1.5)});
    wait_for_file(folder + "/all are there");
    ranks[victim].kill(SIGSTOP);
    for (const int r : {1, 2}) {
      const std::string cause = ranks.result(r);
      EXPECT_TRUE(has(cause, self(victim, ranks) + " has been silent for 1.5 s")) << cause;
    }
  }
}

TEST(FailureOfAJob, IsTheSameOnAllWhenAllFailAtOnce) {
  const TemporaryFolder temporary;
  const std::string& folder = temporary.path();
  Ranks ranks = job_that_fails({.folder = folder}, [](const Job& job) { job.failure->raise(concat("rank ", job.rank, " fails")); });
  const std::string cause = ranks.result(0);
  EXPECT_TRUE(has(cause, " fails")) << cause;
  for (const int r : {1, 2, 3}) EXPECT_EQ(ranks.result(r), cause);
}

TEST(FailureOfAJob, AnExceptionThatEndsARankEndsAll) {
  const TemporaryFolder temporary;
  const std::string& folder = temporary.path();
  Ranks ranks = job_that_fails({.folder = folder}, [](const Job& job) { RT_CHECK_AS(IoError, job.rank != 1, "disk full"); });
  EXPECT_EQ(ranks.result(1), "threw disk full");
  for (const int r : {0, 2, 3}) EXPECT_EQ(ranks.result(r), self(1, ranks) + " ended by an exception; its own output tells which");
}

// Rank 0 waits for rank 1 in a collective; 1 is busy elsewhere, 2 stands still, 3 has finished.
TEST(Report, OfADeadlineSaysWhatEveryRankIsAt) {
  const TemporaryFolder temporary;
  const std::string& folder = temporary.path();
  Ranks ranks(4, [&](int r) {
    std::optional<Job> job = join(place_on_host(r, 4), {.folder = folder}, Seconds(kLong));
    const auto transport = shm_transport(job->context(Seconds(2)));
    Activity::process().set_step(1580 - r);
    transport->begin({.kind = Collective::all_reduce, .dtype = DType::f32, .count = 1 << 20, .sequence = uint64_t(12 - r)},
                     Deadline(Seconds(2)));
    if (r > 0) transport->end();
    job->store->set(concat("is there ", r), "1");
    if (r == 3) return job.reset(), std::string("left");
    if (r == 2) ::raise(SIGSTOP);
    if (r == 1) return cause_of(*job);
    for (int i = 1; i < 4; ++i) job->store->wait(concat("is there ", i), Deadline(Seconds(kLong)));
    job->store->wait("hub/left/3", Deadline(Seconds(kLong)));
    char byte;
    return message_of<CommError>([&] { transport->exchange({recv_from(1, &byte, 1)}); });
  });
  const std::string report = ranks.result(1);
  ranks[2].kill(SIGKILL);  // rank 0, which hosts the store, waits for it
  EXPECT_EQ(ranks.result(0), report);
  EXPECT_TRUE(report.starts_with("rank 0 waited 2 s for rank 1 in all_reduce #12 (sum, f32, 1,048,576 elements) over shm; "
                                 "the ranks at that moment:\nrank  host")) << report;
  const auto expect_row = [&](int rank, std::initializer_list<std::string> parts) {
    const size_t at = report.find(concat('\n', rank, "     ")) + 1;
    const std::string row = report.substr(at, report.find('\n', at) - at);
    for (const std::string& part : parts) EXPECT_TRUE(has(row, part)) << part << " in: " << row;
  };
  expect_row(0, {concat(ranks[0].pid()), "1580", "all_reduce #12 (sum, f32", "4,194,304  rank 1"});
  expect_row(1, {host_name(), concat(ranks[1].pid()), "1579", "idle after all_reduce #11"});
  expect_row(2, {"no answer within 1 s"});
  expect_row(3, {"has left the job"});
}

TEST(Report, OfRanksThatAreThreads) {
  const auto store = memory_store();
  const auto failure = std::make_shared<Failure>();
  std::vector<std::unique_ptr<Transport>> transports;
  for (int r = 0; r < 3; ++r) transports.push_back(threads_transport({r, 3, store, failure, Seconds(0.1)}));
  std::vector<std::string> messages(3);
  const auto run = [&](int r, Seconds timeout) {
    transports[size_t(r)]->begin({.kind = Collective::barrier, .sequence = 5}, Deadline(timeout));
    char byte;
    messages[size_t(r)] = message_of<CommError>([&] { transports[size_t(r)]->exchange({recv_from((r + 1) % 3, &byte, 1)}); });
  };
  std::thread first(run, 0, Seconds(kLong)), second(run, 1, Seconds(kLong));
  for (const int r : {0, 1})
    while (transports[size_t(r)]->waiting_on() != r + 1) std::this_thread::yield();
  run(2, Seconds(0.1));
  first.join();
  second.join();
  for (const std::string& m : messages) EXPECT_EQ(m, failure->cause());
  EXPECT_TRUE(has(messages[0], "rank 2 waited 0.1 s for rank 0 in barrier #5")) << messages[0];
  for (int r = 0; r < 3; ++r) EXPECT_TRUE(has(messages[0], concat("barrier #5  0      rank ", (r + 1) % 3))) << messages[0];
}

TEST(Activity, KeepsTheLast256AndWritesThemOnSigquit) {
  const TemporaryFolder temporary;
  const std::string path = temporary.path() + "/dump";
  Child child([&] {
    const auto transport = threads_transport({0, 1, memory_store(), std::make_shared<Failure>(), Seconds(5)});
    for (uint64_t i = 1; i <= 300; ++i) {
      transport->begin({.kind = Collective::broadcast, .dtype = DType::f64, .count = 2, .sequence = i}, Deadline(Seconds(5)));
      if (i < 300) transport->end();
    }
    dump_activity_on_sigquit(path);
    ::raise(SIGQUIT);
    ::pause();
  });
  std::string text;
  for (const Deadline deadline{Seconds(kLong)}; !has(text, "#300") && !deadline.passed();) {
    std::ifstream in(path);
    text.assign(std::istreambuf_iterator<char>(in), {});
  }
  EXPECT_FALSE(has(text, "#44 "));
  EXPECT_TRUE(has(text, "rank 0 of 1  broadcast #45 (f64, 2 elements, root 0) over threads, took 0.000 s")) << text;
  EXPECT_TRUE(has(text, "#300 (f64, 2 elements, root 0) over threads, not ended after ")) << text;
}

}  // namespace
}  // namespace ringtape::comm
