// `ringtape launch --elastic` and `--join`, and `ringtape store`, as users run them; the ranks are small shell
// programs.
#include <algorithm>
#include <map>
#include <thread>

#include "comm/job/membership.h"
#include "comm/launch/elastic.h"
#include "comm/store/socket.h"
#include "comm/store/tcp_store.h"
#include "tests/support/jobs.h"

namespace ringtape {
namespace {

using namespace test;

constexpr const char* kToken = "0123456789abcdef";

class LaunchElasticTest : public JobTest {
 protected:
  // The program of a rank, ./rank: does what `before` says, writes its process into pid_RANK, one line a start, then
  // does what `text` says.
  void write_rank(const std::string& text, const std::string& before = "") {
    const fs::path path = folder_ / "rank";
    write_file(path.string(), "#!/bin/sh\n" + before +
                                  "\necho $$ >>pid_$RANK\n"
                                  "wait_for() { while ! test -e $1; do sleep 0.01; done; }\n" +
                                  text + "\n");
    fs::permissions(path, fs::perms::owner_all);
  }
  // With the token of all jobs here.
  pid_t launch(const std::string& arguments, const std::string& log = "log") {
    return start(concat("export RINGTAPE_TOKEN=", kToken, "; ringtape launch ", arguments), log);
  }
  std::string elastic(int ranks, const std::string& flags = "") const {
    return concat("-n ", ranks, " --elastic ", flags, " -- ./rank");
  }
  // These ranks, which do not train, never say hello.
  static void no_more_ranks_come(comm::Store& store) { store.add(comm::kSlotsKey, -store.add(comm::kSlotsKey, 0)); }
  void let_go() { write_file((folder_ / "go").string(), ""); }

  std::vector<pid_t> pids(int rank) const {
    std::vector<pid_t> out;
    std::istringstream in(log(concat("pid_", rank)));
    for (pid_t pid; in >> pid;) out.push_back(pid);
    return out;
  }
  // Until rank `rank` was started so often; its newest process.
  pid_t started(int rank, size_t times = 1) {
    EXPECT_TRUE(within(30, [&] { return pids(rank).size() >= times && log(concat("pid_", rank)).ends_with('\n'); }))
        << "rank " << rank << ": " << log();
    return pids(rank).empty() ? 0 : pids(rank).back();
  }
  bool says(const std::string& text, const std::string& log_name = "log") {
    return within(30, [&] { return log(log_name).find(text) != std::string::npos; });
  }
  void kill_rank(int rank, size_t times = 1, int signal = SIGKILL) {
    if (const pid_t pid = started(rank, times); pid > 0) ::kill(pid, signal);
  }

  static int free_port() { return comm::port_of(comm::listen_on("127.0.0.1", 0)); }
  static std::shared_ptr<comm::Store> store_at(int port) {
    return comm::tcp_store({"127.0.0.1", port, kToken}, comm::Deadline(comm::Seconds(30)));
  }
  // Starts `ringtape store`, with its output in store.log; returns its port.
  int start_store(pid_t& process) {
    process = start(concat("export RINGTAPE_TOKEN=", kToken, "; ringtape store --host 127.0.0.1"), "store.log");
    EXPECT_TRUE(says("\n", "store.log"));
    const std::string said = log("store.log"), before = "listens on 127.0.0.1, port ";
    const size_t at = said.find(before);
    return at == std::string::npos ? 0 : std::stoi(said.substr(at + before.size()));
  }

  // It must fail with exit code 2 and one line that mentions `part`.
  void expect_usage_error(const std::string& command, const std::string& part) {
    EXPECT_EQ(run(command), 2) << part;
    const std::string said = log();
    EXPECT_TRUE(said.starts_with("ringtape: error: ")) << said;
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
    EXPECT_MENTIONS(said, part);
  }
};

TEST_F(LaunchElasticTest, TheOthersGoOnAndTheEndedRankStartsAgain) {
  write_rank("wait_for go", "echo $RINGTAPE_RESTART $RANK $LOCAL_RANK $WORLD_SIZE $RINGTAPE_STORE");
  const pid_t launcher = launch(elastic(3, "--log-dir logs"));
  kill_rank(1);
  kill_rank(1, 2);
  const pid_t second = started(0), third = started(1, 3);
  EXPECT_TRUE(says("again in 0.1 s (2 of 10)"));
  let_go();
  EXPECT_EQ(wait(launcher), 0) << log();
  EXPECT_EQ(pids(0), std::vector{second});
  EXPECT_EQ(pids(1).size(), 3u);
  EXPECT_EQ(pids(1).back(), third);
  EXPECT_EQ(pids(2).size(), 1u);
  EXPECT_MENTIONS(log(), concat("ringtape: rank 1 (pid ", pids(1)[0], ") was killed by signal 9 (SIGKILL) after "));
  EXPECT_MENTIONS(log(), " s; started again (1 of 10)\n");
  EXPECT_MENTIONS(log(), " s; started again in 0.1 s (2 of 10)\n");
  EXPECT_LACKS(log(), "error");
  const std::string first = log("logs/attempt_0/rank_1.log");
  EXPECT_TRUE(first.starts_with("0 1 1 3 127.0.0.1:")) << first;
  for (const char* number : {"1", "2"})
    EXPECT_EQ(log(concat("logs/attempt_", number, "/rank_1.log")), number + first.substr(1));
  EXPECT_FALSE(fs::exists(folder_ / "logs/attempt_1/rank_0.log"));
}

TEST_F(LaunchElasticTest, RestartsAreUsedUp) {
  write_rank("test $RANK = 1 && exit 3; wait_for go; exit $(cat go)0");
  for (const auto& [end, code] : std::map<std::string, int>{{"", 0}, {"7", 3}}) {
    for (const char* name : {"go", "pid_0", "pid_1"}) fs::remove(folder_ / name);
    const pid_t launcher = launch(elastic(2, "--max-restarts 3"));
    EXPECT_TRUE(says("not started again: 3 restarts are used up, 1 rank goes on\n"));
    EXPECT_MENTIONS(log(), " s; started again (1 of 3)\n");
    EXPECT_MENTIONS(log(), " s; started again in 0.1 s (2 of 3)\n");
    EXPECT_MENTIONS(log(), " s; started again in 0.2 s (3 of 3)\n");
    write_file((folder_ / "go").string(), end);
    EXPECT_EQ(wait(launcher), code) << log();
    EXPECT_EQ(pids(0).size(), 1u);
    EXPECT_EQ(pids(1).size(), 4u);
  }
  EXPECT_MENTIONS(log(), "ringtape: error: rank 1 of 2 was the first to fail: exit code 3 after ");
  for (const auto& [last, code] : std::map<std::string, int>{{"0", 75}, {"1", 3}}) {  // the end of the last counts
    fs::remove(folder_ / "go");
    write_rank(concat("test $RANK = ", last, " && wait_for go; test $RANK = 1 && exit 3; exit 75"));
    const pid_t launcher = launch(elastic(2, "--max-restarts 0"));
    EXPECT_TRUE(says(", 1 rank goes on\n"));
    let_go();
    EXPECT_EQ(wait(launcher), code) << log();
    EXPECT_MENTIONS(log(), "not started again: --max-restarts 0");
  }
}

TEST_F(LaunchElasticTest, OnlyWhatStartsAgainResumes) {
  write_rank("echo $# $1 >>arguments; test $RINGTAPE_RESTART = 1");
  Child launcher([&] {
    fs::current_path(folder_);
    comm::Launch l;
    l.command = {"./rank"}, l.on_restart = {"--resume"}, l.token = kToken;
    l.elastic = true, l.max_restarts = 2;
    ::_exit(comm::launch(l));
  });
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_EQ(log("arguments"), "0\n1 --resume\n");
}

TEST_F(LaunchElasticTest, WhatEndsWellOrWithWrongUsageStaysEnded) {
  write_rank("test $RANK = 1 && exit 75; wait_for go; exit $(cat go)");
  for (const auto& [end, code] : std::map<std::string, int>{{"0", 0}, {"75", 75}}) {
    for (const char* name : {"go", "pid_0", "pid_1"}) fs::remove(folder_ / name);
    const pid_t launcher = launch(elastic(2));
    EXPECT_TRUE(says("not started again: it was asked to leave, 1 rank goes on\n"));
    write_file((folder_ / "go").string(), end);
    EXPECT_EQ(wait(launcher), code) << log();
    EXPECT_EQ(pids(0).size() + pids(1).size(), 2u);
  }
  EXPECT_MENTIONS(log(), "ringtape: stopped: exit code 75");
  EXPECT_EQ(run("ringtape launch -n 2 --elastic -- list nonsense"), 2);
  EXPECT_MENTIONS(log(), "not started again: wrong usage");
  EXPECT_LACKS(log(), "started again (");
  write_rank("exit 2");
  EXPECT_EQ(run(concat("ringtape launch ", elastic(1, "--max-restarts 1"))), 2);
  EXPECT_MENTIONS(log(), "started again (1 of 1)");
}

TEST_F(LaunchElasticTest, ItEndsWhenToldTo) {
  write_rank("trap 'exit 75' TERM; echo ready; while :; do sleep 0.01; done");
  const pid_t launcher = launch(elastic(2));
  EXPECT_TRUE(says("[0] ready\n") && says("[1] ready\n"));
  ::kill(launcher, SIGTERM);
  EXPECT_EQ(wait(launcher), 75) << log();
  EXPECT_MENTIONS(log(), "not started again: the launcher was told to end");
  EXPECT_LACKS(log(), "; started again");

  write_rank("exit 3");  // most of the time it waits to be started
  const pid_t other = launch(elastic(1));
  EXPECT_TRUE(says("started again in 1.6 s"));
  ::kill(other, SIGTERM);
  const int code = wait(other);
  EXPECT_TRUE(code == 3 || code == 128 + SIGTERM) << code;
  EXPECT_MENTIONS(log(), "not started again: the launcher was told to end");

  write_rank("exec sleep 100");
  EXPECT_EQ(run(concat("ringtape launch ", elastic(2, "--timeout 0.3"))), comm::kTimedOut);
  EXPECT_MENTIONS(log(), "not started again: --timeout has passed");
}

TEST_F(LaunchElasticTest, AJobThatHasFailedOrIsDoneStartsNothing) {
  write_rank("test $RANK = 0 && trap '' TERM; echo ready; while ! test -e go; do sleep 0.01; done");
  for (const char* key : {comm::kFailureKey, comm::kDoneKey}) {
    for (const char* name : {"pid_0", "pid_1", "pid_2"}) fs::remove(folder_ / name);
    const int port = free_port();
    const pid_t launcher = launch(elastic(3, concat("--grace 0.2 --master-port ", port)));
    for (const char* rank : {"0", "1", "2"}) EXPECT_TRUE(says(concat("[", rank, "] ready\n")));
    no_more_ranks_come(*store_at(port));
    store_at(port)->set(key, "rank 1 has no disk\nand more");
    kill_rank(1);
    if (key == comm::kFailureKey) {
      EXPECT_EQ(wait(launcher), 128 + SIGKILL) << log();
      EXPECT_MENTIONS(log(), "; not started again: the job has failed: rank 1 has no disk\n");
      EXPECT_MENTIONS(log(), "ringtape: error: rank 1 of 3 was the first to fail: killed by signal 9 (SIGKILL)");
      EXPECT_MENTIONS(log(), "the other ranks here: 0 killed by signal 9 (SIGKILL), 2 killed by signal 15 (SIGTERM)");
    } else {
      EXPECT_TRUE(says("; not started again: the job is done, 2 ranks go on\n"));
      kill_rank(2, 1, SIGSTOP);  // and is not waited for
      let_go();
      EXPECT_EQ(wait(launcher), 0) << log();
      EXPECT_MENTIONS(log(), "was killed by signal 9 (SIGKILL)");
    }
    for (const int rank : {0, 1, 2}) EXPECT_EQ(pids(rank).size(), 1u) << rank;
  }
}

TEST_F(LaunchElasticTest, WhoJoinsRunsTheJobsCommandWithFurtherRanks) {
  write_rank("echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR $1; wait_for go");
  pid_t server = 0;
  const int port = start_store(server);
  const std::string at = concat("--join 127.0.0.1:", port);
  const pid_t first = launch(at + " -n 3 --exec -- ./rank 'a b'", "first");
  for (int rank = 0; rank < 3; ++rank) started(rank);
  const pid_t second = launch(at + " -n 2 --tee 4", "second");
  started(3);
  kill_rank(4);
  started(4, 2);
  expect_usage_error(concat("export RINGTAPE_TOKEN=", kToken, "; ringtape launch ", at, " -n 1 -- ./rank c"),
                     "--join: the job's command is './rank a b', not './rank c'");
  auto store = store_at(port);
  EXPECT_EQ(store->get(comm::kRanksKey), "3");
  EXPECT_EQ(store->get(comm::kCommandKey),
            "./rank\x1f"
            "a b");
  EXPECT_EQ(store->add(comm::kSlotsKey, 0), 5);
  let_go();
  EXPECT_EQ(wait(first), 0) << log("first");
  EXPECT_EQ(wait(second), 0) << log("second");
  EXPECT_MENTIONS(log("first"), "[2] 2 2 3 3 127.0.0.1 a b\n");
  EXPECT_MENTIONS(log("second"), "[4] 4 1 5 2 127.0.0.1 a b\n");
  EXPECT_LACKS(log("second"), "[3]");
  EXPECT_MENTIONS(log("second"), "SIGKILL");
  no_more_ranks_come(*store);
  store->set(comm::kDoneKey, "1");
  EXPECT_FALSE(within(0.3, [&] { return ended(server); })) << "a client is there";
  store.reset();
  EXPECT_EQ(wait(server), 0) << log("store.log");
}

TEST_F(LaunchElasticTest, WhoJoinsWaitsForTheCommand) {
  write_rank("echo $RANK $# $2");
  pid_t server = 0;
  const int port = start_store(server);
  const pid_t launcher = launch(concat("--join 127.0.0.1:", port, " -n 1"));
  EXPECT_TRUE(says(concat("waiting for the launcher that gives the job at 127.0.0.1:", port, " its command\n")));
  store_at(port)->set(comm::kCommandKey,
                      "./rank\x1f\x1f"
                      "a");
  EXPECT_EQ(wait(launcher), 0) << log();
  EXPECT_MENTIONS(log(), "[0] 0 2 a\n");
  no_more_ranks_come(*store_at(port));
  store_at(port)->set(comm::kDoneKey, "1");
  EXPECT_EQ(wait(server), 0);
}

TEST_F(LaunchElasticTest, OneJoinsAnotherLauncher) {
  write_rank("wait_for go; echo $RANK $WORLD_SIZE");
  const int port = free_port();
  const pid_t first = launch(elastic(2, concat("--nnodes 1 --master-port ", port)), "first");
  started(1);
  const pid_t second = launch(concat("--join 127.0.0.1:", port, " -n 1"), "second");
  started(2);
  let_go();
  EXPECT_EQ(wait(second), 0) << log("second");
  EXPECT_EQ(wait(first), 0) << log("first");
  EXPECT_MENTIONS(log("first"), "[1] 1 2\n");
  EXPECT_MENTIONS(log("second"), "[2] 2 3\n");
}

TEST_F(LaunchElasticTest, ALauncherAsksTheStoreOfAnotherNode) {
  write_rank("echo $RANK $WORLD_SIZE; wait_for go");
  const int port = free_port();
  const auto node = [&](int number) {
    const std::string at = concat("--nnodes 2 --node-rank ", number, " --master-addr 127.0.0.1 --master-port ", port);
    return launch(elastic(1, at), concat("node", number));
  };
  const pid_t first = node(0);
  started(0);
  const pid_t second = node(1);
  kill_rank(1);
  started(1, 2);
  EXPECT_TRUE(says("[1] 1 2\n", "node1"));
  EXPECT_EQ(store_at(port)->get(comm::kRanksKey), "2");
  EXPECT_EQ(store_at(port)->add(comm::kSlotsKey, 0), 2);
  ::kill(first, SIGKILL);
  EXPECT_EQ(wait(first), -SIGKILL);
  kill_rank(1, 2);
  EXPECT_EQ(wait(second), 128 + SIGKILL);
  EXPECT_MENTIONS(log("node1"), concat("not started again: no connection to the store at 127.0.0.1:", port));
}

TEST_F(LaunchElasticTest, TrainingIsToldThatItIsElastic) {
  pid_t server = 0;
  const int port = start_store(server);
  const pid_t launcher = launch(concat("--join 127.0.0.1:", port, " -n 1 --min-ranks 2 -- train --run digits"));
  EXPECT_EQ(store_at(port)->wait(comm::kCommandKey, comm::Deadline(comm::Seconds(30))),
            "\x1ftrain\x1f--run\x1f"
            "digits\x1f--elastic\x1f--min-ranks\x1f"
            "2");
  ::kill(launcher, SIGTERM);
  wait(launcher);
  ::kill(server, SIGTERM);
  EXPECT_EQ(wait(server), comm::kPreempted);
}

TEST_F(LaunchElasticTest, TheStoreEndsWithTheJob) {
  pid_t server = 0;
  store_at(start_store(server))->set(comm::kDoneKey, "1");
  EXPECT_EQ(wait(server), 0) << log("store.log");
  store_at(start_store(server))->set(comm::kFailureKey, "rank 1 has no disk");
  EXPECT_EQ(wait(server), 1);
  EXPECT_MENTIONS(log("store.log"), "ringtape: error: rank 1 has no disk\n");
  start_store(server);
  ::kill(server, SIGTERM);
  EXPECT_EQ(wait(server), comm::kPreempted);
  EXPECT_MENTIONS(log("store.log"), "ringtape: the store was told to end before its job was done\n");
  expect_usage_error("ringtape store --port 0", "store: needs the environment variable RINGTAPE_TOKEN");
}

TEST_F(LaunchElasticTest, WrongUsage) {
  const std::string token = concat("export RINGTAPE_TOKEN=", kToken, "; ");
  expect_usage_error("ringtape launch -n 2 --min-ranks 1 -- train", "--min-ranks: needs --elastic or --join");
  expect_usage_error("ringtape launch -n 2 --elastic --min-ranks 0 -- train",
                     "--min-ranks: expected a whole number from 1 to 4096, got '0'");
  expect_usage_error("ringtape launch -n 2 --elastic -- train", "--elastic: needs train --run NAME");
  expect_usage_error("ringtape launch -n 2 --elastic", "needs a command after --");
  expect_usage_error("ringtape launch -n 2 --elastic --master-addr node0 -- train --run x",
                     "--elastic --master-addr node0: needs the environment variable RINGTAPE_TOKEN");
  expect_usage_error("ringtape launch -n 2 --join node0:29500",
                     "--join: needs the environment variable RINGTAPE_TOKEN");
  for (const char* where : {"node0", ":29500", "node0:", "node0:70000", "node0:x"})
    expect_usage_error(concat(token, "ringtape launch -n 2 --join ", where),
                       concat("--join: expected HOST:PORT, as in node0:29500, got '", where, "'"));
  expect_usage_error(token + "ringtape launch -n 2 --join node0:29500 --nnodes 2",
                     "--join node0:29500: not with --nnodes");
  expect_usage_error(token + "ringtape launch -n 2 --join node0:29500 --min-ranks 2",
                     "--min-ranks: needs a command after --");
  expect_usage_error(token + "ringtape launch --join node0:29500", "needs -n");
}

// A rank that comes when the job is done would wait for a store that has gone.
TEST(AwaitLatecomers, KeepsTheStoreOfAJobThatIsDone) {
  comm::StoreServer server({.token = kToken});
  const auto connect = [&] {
    return comm::tcp_store({"127.0.0.1", server.port(), kToken}, comm::Deadline(comm::Seconds(60)));
  };
  const std::shared_ptr<comm::Store> store = connect();
  constexpr comm::Seconds kEver(1e6);
  store->add(comm::kSlotsKey, 2);
  comm::await_latecomers(*store, kEver);  // the job is not done
  store->set(comm::kDoneKey, "1");
  std::thread ranks([&] {
    const comm::Membership early(connect(), {}, "host", "early");
    std::this_thread::sleep_for(comm::Seconds(0.1));
    const comm::Membership late(connect(), {}, "host", "late");
  });
  comm::await_latecomers(*store, kEver);
  EXPECT_EQ(comm::Membership::arrivals(*store), 2);
  ranks.join();
  store->add(comm::kSlotsKey, 1);
  comm::await_latecomers(*store, comm::Seconds(0.1));  // one that never comes
}

}  // namespace
}  // namespace ringtape
