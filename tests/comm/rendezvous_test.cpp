// How processes form a job, and how all of them learn why it ends.
#include "comm/job/rendezvous.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "comm/base/host_name.h"
#include "comm/store/private_file.h"
#include "comm/store/socket.h"
#include "comm/store/tcp_store.h"
#include "comm/transport/transports.h"
#include "tests/support/job_ranks.h"
#include "tests/support/support.h"

namespace ringtape::comm {
namespace {

using namespace test;
using testing::Test;
namespace fs = std::filesystem;

std::string self(int rank, const Ranks& ranks) {
  return concat("rank ", rank, " (pid ", ranks[rank].pid(), " on ", host_name(), ")");
}

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

// Rank 0 is killed while the others wait for a rank that does not come, or before they find rank 0.
TEST(Rendezvous, NothingStaysOfARank0ThatIsKilled) {
  const TemporaryFolder temporary;
  const std::string& folder = temporary.path();
  for (const bool is_found : {true, false}) {
    const auto meet = [&](int r) { return concat(join(place_on_host(r, 4), {.folder = folder}, Seconds(3)).size); };
    Ranks first(1, meet);
    for (const Deadline deadline{Seconds(kLong)}; fs::is_empty(folder) && !deadline.passed();)
      std::this_thread::sleep_for(Seconds(0.002));
    if (!is_found) first[0].kill(SIGKILL);
    Ranks others(2, [&](int r) { return meet(r + 1); });
    if (is_found) std::this_thread::sleep_for(Seconds(0.5));
    first[0].kill(SIGKILL);
    for (const int r : {0, 1}) {
      const std::string cause = others.result(r);
      EXPECT_TRUE(has(cause, is_found ? self(0, first) + " died" : "has not found rank 0")) << cause;
    }
    EXPECT_TRUE(fs::is_empty(folder)) << fs::directory_iterator(folder)->path();
  }
}

// A reader, or a process that cleans up after a kill, finds the complete notice or nothing.
TEST(Rendezvous, ANoticeHasNoOtherName) {
  const TemporaryFolder temporary;
  const Fd can(::open(temporary.path().c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0600));
  if (!can) GTEST_SKIP() << "this file system has no files without a name";
  const std::string path = private_path(temporary.path(), "job");
  const Child writer([&] {
    for (;;) PrivateFile(path, "old"), PrivateFile(path, "new");
  });
  int64_t seen = 0;
  for (const Deadline deadline{Seconds(kLong)}; seen < 1000 && !deadline.passed();)
    for (const auto& file : fs::directory_iterator(temporary.path())) {
      ASSERT_EQ(file.path(), path);
      ++seen;
    }
  EXPECT_GE(seen, 1000);
  EXPECT_TRUE(std::set<std::string>({"", "old", "new"}).contains(PrivateFile::read(path)));
}

TEST(Rendezvous, MeetsInAFolder) {
  const TemporaryFolder temporary;
  const std::string folder = temporary.path() + "/job";
  expect_meets({.store = folder});
  EXPECT_FALSE(fs::exists(folder));
}

// A store that outlives all ranks, like that of a launcher.
class Launcher {
 public:
  explicit Launcher(Seconds heartbeat = Seconds(10)) : heartbeat_(heartbeat) {}
  void stop() const {
    process_.kill(SIGSTOP);
    int status = 0;
    EXPECT_EQ(::waitpid(process_.pid(), &status, WUNTRACED), process_.pid());  // it is stopped
  }
  Meeting meeting() const { return {.store = concat("127.0.0.1:", port_of(listening_)), .token = kToken}; }
  std::shared_ptr<Store> store() const {
    return tcp_store({"127.0.0.1", port_of(listening_), kToken}, Deadline(Seconds(kLong)));
  }

 private:
  static constexpr const char* kToken = "the launcher's token";
  const Seconds heartbeat_;
  const Fd listening_ = listen_on("127.0.0.1", 0);
  const Child process_{[this] {
    const StoreServer server(
        {.token = kToken, .name = "the launcher", .listening = ::dup(listening_.get()), .heartbeat = heartbeat_});
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

// The ranks of a host are an island if the launcher gave all hosts equally many, one host after the other.
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
  EXPECT_EQ(island({{0, 2}, {0, 2}, {1, 2}, {1, 2}}), 1);  // alternating
  EXPECT_EQ(island({{0, 2}, {1, 2}, {0, 1}}), 1);          // of different sizes
  EXPECT_EQ(island({{0, 2}, {1, 2}, {0, 1}, {0, 1}}), 1);
}

TEST(Rendezvous, AsksForWhatItNeedsOverSeveralHosts) {
  Place place = place_on_host(1, 2);
  place.one_host = false;
  EXPECT_TRUE(has(message_of<UsageError>([&] { join(place, {}, Seconds(1)); }), "set RINGTAPE_TOKEN"));
  EXPECT_TRUE(
      has(message_of<UsageError>([&] { join(place, {.token = "sixteen letters."}, Seconds(1)); }), "set MASTER_ADDR"));
  EXPECT_TRUE(
      has(message_of<UsageError>([&] { join(place, {.store = "127.0.0.1:1"}, Seconds(1)); }), "not RINGTAPE_TOKEN"));
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
  Ranks ranks(
      2, [&](int r) { return concat(join(place_on_host(r * 2, 4), {.folder = folder}, Seconds(r ? kLong : 2)).size); });
  const std::string cause = ranks.result(0);
  EXPECT_TRUE(has(cause, "threw ranks 1, 3 of 4 did not join within ")) << cause;
  EXPECT_EQ(ranks.result(1), cause);
}

TEST(Rendezvous, NamesARankThatIsThereTwice) {
  const Launcher launcher;
  Ranks ranks(4, [&](int r) {
    return concat(join(place_on_host(r == 3 ? 1 : r, 4), launcher.meeting(), Seconds(kLong)).size);
  });
  const std::string cause = ranks.result(0);
  EXPECT_TRUE(has(cause, "threw rank 1 was started twice: ") && has(cause, self(1, ranks)) &&
              has(cause, concat("pid ", ranks[3].pid())))
      << cause;
  for (int r = 1; r < 4; ++r) EXPECT_EQ(ranks.result(r), cause);
}

TEST(Rendezvous, NamesARankThatExpectsAnotherSize) {
  const Launcher launcher;
  Ranks ranks(3, [&](int r) {
    if (r == 2) launcher.store()->wait("job/size", Deadline(Seconds(kLong)));
    return concat(join(place_on_host(r, r == 2 ? 4 : 3), launcher.meeting(), Seconds(kLong)).size);
  });
  const std::string cause =
      concat("threw ", self(2, ranks), " expects 4 ranks, but the ranks before it expect 3; ",
             "start all with the same number (ringtape launch: the same -n on all machines, ", "as in -n 4,2)");
  for (int r = 0; r < 3; ++r) EXPECT_EQ(ranks.result(r), cause);
}

// Each of four ranks joins, says so, and gives the cause that ends the job.
Ranks job_that_fails(
    const Meeting& meeting, const std::function<void(const Job&)>& then = [](const Job&) {}) {
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
  for (const Deadline deadline{Seconds(kLong)}; !fs::exists(path) && !deadline.passed();)
    std::this_thread::sleep_for(Seconds(0.002));
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
  for (const int r : {1, 2, 3})
    EXPECT_TRUE(has(ranks.result(r), self(0, ranks) + " died; it hosted the store at 127.0.0.1:"));
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
  Ranks ranks = job_that_fails({.folder = folder},
                               [](const Job& job) { job.failure->raise(concat("rank ", job.rank, " fails")); });
  const std::string cause = ranks.result(0);
  EXPECT_TRUE(has(cause, " fails")) << cause;
  for (const int r : {1, 2, 3}) EXPECT_EQ(ranks.result(r), cause);
}

// After the launcher was stopped, the ranks end because of the stop: the rank that noticed it first is gone.
TEST(FailureOfAJob, IsTheLaunchersStopOnAll) {
  const TemporaryFolder temporary;
  const std::string& folder = temporary.path();
  const Launcher launcher(Seconds(1.5));
  Meeting meeting = launcher.meeting();
  meeting.folder = folder;
  Ranks ranks = job_that_fails(meeting, [&](const Job& job) {
    wait_for_file(folder + "/it is stopped");
    job.failure->raise(concat("rank ", 3 - job.rank, " has left the group"));
  });
  wait_for_file(folder + "/all are there");
  launcher.stop();
  std::ofstream(folder + "/it is stopped") << "yes";
  const std::string cause = ranks.result(0);
  EXPECT_TRUE(has(cause, "the launcher has been silent for 1.5 s")) << cause;
  for (const int r : {1, 2, 3}) EXPECT_EQ(ranks.result(r), cause);
}

TEST(FailureOfAJob, AnExceptionThatEndsARankEndsAll) {
  const TemporaryFolder temporary;
  const std::string& folder = temporary.path();
  Ranks ranks =
      job_that_fails({.folder = folder}, [](const Job& job) { RT_CHECK_AS(IoError, job.rank != 1, "disk full"); });
  EXPECT_EQ(ranks.result(1), "threw disk full");
  for (const int r : {0, 2, 3})
    EXPECT_EQ(ranks.result(r), self(1, ranks) + " failed with an exception; see its own output");
}

}  // namespace
}  // namespace ringtape::comm
