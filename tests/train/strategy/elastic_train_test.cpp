// Training whose ranks are killed, stopped, told to leave and joined by others, as users run it. With --shares the
// weights are always those of an undisturbed training.
#include <algorithm>
#include <map>

#include "comm/store/socket.h"
#include "tests/support/jobs.h"

namespace ringtape {
namespace {

using namespace test;

// 700 steps.
const std::string kShared = kTraining + " --epochs 10 --shares 4 --deterministic --checkpoint-steps 50 --run ";

class ElasticTrainTest : public JobTest {
 protected:
  void SetUp() override {
    JobTest::SetUp();
    ASSERT_EQ(run("ringtape " + kShared + "whole"), 0) << log();
  }
  pid_t launch(int ranks, const std::string& name, const std::string& flags = "", const std::string& more = "",
               const std::string& heartbeat = "10") {
    return start(concat("export RINGTAPE_TOKEN=0123456789abcdef RINGTAPE_HEARTBEAT=", heartbeat,
                        "; ringtape launch -n ", ranks, " --elastic ", flags, " -- ", kShared, name, more));
  }
  bool says(const std::string& text, const std::string& name = "log") const {
    return within(30, [&] { return log(name).find(text) != std::string::npos; });
  }
  // Until the training is behind its first checkpoint, of which .saved is written last.
  void await_steps(const std::string& name) const {
    EXPECT_TRUE(within(30, [&] { return fs::exists(run_folder(name) / ".saved"); })) << log();
  }
  static bool is_stopped(pid_t pid) {
    const std::string text = read_file(concat("/proc/", pid, "/stat"));
    return text.find(") T ") != std::string::npos;
  }
  // Stops a rank where it writes no checkpoint: one stopped between looking and writing would write when it wakes.
  void stop_between_checkpoints(pid_t pid, const std::string& name) const {
    const auto settled = [&] {
      const fs::path folder = run_folder(name) / "checkpoints";
      std::string newest;
      for (const auto& entry : fs::directory_iterator(folder))
        newest = std::max(newest, entry.is_symlink() ? "" : entry.path().filename().string());
      return fs::read_symlink(folder / "last") == newest;  // a file that is not complete has a later name
    };
    EXPECT_TRUE(within(30, [&] {
      ::kill(pid, SIGSTOP);
      const bool done = within(1, [&] { return is_stopped(pid); }) && settled();
      if (!done) ::kill(pid, SIGCONT);
      return done;
    })) << log();
  }
  void expect_same(const std::string& name) const {
    EXPECT_TRUE(bytes(name) == bytes("whole")) << name << ": " << log();
    const auto last = [&](const std::string& run) {
      return read_file((run_folder(run) / "checkpoints/last/optimizer.safetensors").string());
    };
    EXPECT_TRUE(last(name) == last("whole")) << name << ": " << log();
  }
  // Sends a signal to ranks of a launcher, which are stopped before so that no one runs ahead of another's signal.
  void signal(pid_t launcher, const std::vector<int>& ranks, int number) {
    std::vector<pid_t> found;
    for (const int rank : ranks) found.push_back(rank_of(launcher, rank));
    for (const pid_t pid : found) EXPECT_EQ(::kill(pid, SIGSTOP), 0);
    for (const pid_t pid : found) ::kill(pid, number);
    if (number != SIGKILL)
      for (const pid_t pid : found) ::kill(pid, SIGCONT);
  }
  // Every file of a run: inode, time of the last change, bytes.
  std::map<std::string, std::string> files(const std::string& name) const {
    std::map<std::string, std::string> out;
    for (const auto& entry : fs::recursive_directory_iterator(run_folder(name))) {
      struct stat s {};
      EXPECT_EQ(::lstat(entry.path().c_str(), &s), 0);
      const std::string text = entry.is_regular_file() ? read_file(entry.path().string()) : "";
      out[entry.path().string()] = concat(s.st_ino, " ", s.st_mtim.tv_sec, ".", s.st_mtim.tv_nsec, "\n", text);
    }
    return out;
  }
};

TEST_F(ElasticTrainTest, AKilledRankCostsNoBit) {
  const std::map<std::string, std::vector<int>> victims = {{"follower", {2}}, {"leader", {0}}, {"two", {0, 3}}};
  for (const auto& [name, ranks] : victims) {
    const pid_t launcher = launch(4, name);
    await_steps(name);
    signal(launcher, ranks, SIGKILL);
    EXPECT_EQ(wait(launcher), 0) << log();
    EXPECT_MENTIONS(log(), "was killed by signal 9 (SIGKILL)");
    EXPECT_MENTIONS(log(), "ranks  generation 2: ");
    expect_same(name);
  }
  for (const int rank : {0, 1}) {
    const std::string name = concat("early", rank);
    const pid_t launcher = launch(2, name);
    ::kill(rank_of(launcher, rank), SIGKILL);
    EXPECT_EQ(wait(launcher), 0) << log();
    EXPECT_MENTIONS(log(), "; started again (1 of 10)");
    expect_same(name);
  }
}

TEST_F(ElasticTrainTest, WhoIsTooManyWaitsUntilNeeded) {
  const int port = comm::port_of(comm::listen_on("127.0.0.1", 0));
  const pid_t launcher = launch(4, "spare", concat("--max-restarts 0 --master-port ", port), "", "100");
  await_steps("spare");
  ::kill(rank_of(launcher, 1), SIGSTOP);  // the others wait for it
  const pid_t other = start(
      concat("export RINGTAPE_TOKEN=0123456789abcdef; ringtape launch --join 127.0.0.1:", port, " -n 1"), "other");
  const pid_t spare = rank_of(other, 0);
  EXPECT_TRUE(within(120, [&] { return log("other").find("waits for a place") != std::string::npos; })) << log("other");
  EXPECT_LACKS(log(), "generation 2");
  signal(launcher, {1}, SIGKILL);
  EXPECT_EQ(wait(other), 0) << log("other");
  EXPECT_EQ(wait(launcher), 0) << log();
  EXPECT_GT(spare, 0);
  EXPECT_MENTIONS(log() + log("other"), "ranks  generation 2: 4 ranks");
  expect_same("spare");
}

TEST_F(ElasticTrainTest, WhoIsToldToLeaveLeaves) {
  for (const int rank : {1, 0}) {
    const std::string name = concat("left", rank);
    const pid_t launcher = launch(3, name);
    await_steps(name);
    ::kill(rank_of(launcher, rank), SIGTERM);
    EXPECT_EQ(wait(launcher), 0) << log();
    EXPECT_MENTIONS(log(), concat("ringtape: rank ", rank, " (pid "));
    EXPECT_MENTIONS(log(), "not started again: it was asked to leave, 2 ranks go on\n");
    EXPECT_MENTIONS(log(), "ranks  generation 2: 2 ranks");
    expect_same(name);
  }
}

TEST_F(ElasticTrainTest, TheLauncherIsToldToEnd) {
  const pid_t launcher = launch(3, "ended");
  await_steps("ended");
  ::kill(launcher, SIGTERM);
  EXPECT_EQ(wait(launcher), 75) << log();
  EXPECT_MENTIONS(log(), ", with a checkpoint; resume it with --resume --run runs/ended");
  const pid_t again = launch(2, "ended", "", " --resume");
  EXPECT_EQ(wait(again), 0) << log();
  EXPECT_MENTIONS(log(), "resume runs/ended/checkpoints/step-");
  expect_same("ended");
}

TEST_F(ElasticTrainTest, TooFewSaveWhatTheyHave) {
  const pid_t launcher = launch(3, "few", "--max-restarts 0 --min-ranks 2", " --wait-for-ranks 0.5");
  await_steps("few");
  signal(launcher, {0, 2}, SIGKILL);
  EXPECT_EQ(wait(launcher), 75) << log();
  EXPECT_MENTIONS(log(), "stopped because fewer than --min-ranks are left, at step ");
  EXPECT_EQ(run(concat("ringtape ", kShared, "few --resume")), 0) << log();
  EXPECT_MENTIONS(log(), "resume runs/few/checkpoints/step-");
  expect_same("few");
}

TEST_F(ElasticTrainTest, WhoIsStoppedIsNotWaitedForAndWritesNothing) {
  // Who is silent for the heartbeat loses its store, too.
  const std::map<int, std::string> ends = {{1, "the other ranks have gone on without this process: "},
                                           {0, "this process, or its machine, was stopped for "}};
  for (const auto& [rank, what] : ends) {
    const std::string name = concat("stopped", rank), heartbeat = rank == 0 ? "2" : "100";
    const pid_t launcher = launch(4, name, "--max-restarts 0 --grace 100", " --step-timeout 3", heartbeat);
    await_steps(name);
    const pid_t stopped = rank_of(launcher, rank);
    std::vector<pid_t> others;
    for (const int other : {0, 1, 2, 3})
      if (other != rank) others.push_back(rank_of(launcher, other));
    stop_between_checkpoints(stopped, name);
    const auto begin = Clock::now();
    EXPECT_TRUE(says("ranks  generation 2: 3 ranks")) << log();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    EXPECT_LACKS(log(), "the ranks at that moment");  // one line
    std::printf("the others went on after %.1f s\n", seconds);
    for (const pid_t pid : others) EXPECT_TRUE(within(30, [&] { return ::kill(pid, 0) != 0; })) << log();
    expect_same(name);
    const auto before = files(name);
    ::kill(stopped, SIGCONT);
    EXPECT_EQ(wait(launcher), 0) << log();
    EXPECT_MENTIONS(log(), concat("[", rank, "] ringtape: error: ", what));
    EXPECT_MENTIONS(log(), ") ended with exit code 1 after ");
    const auto after = files(name);
    for (const auto& [path, content] : after)
      EXPECT_TRUE(before.contains(path) && before.at(path) == content) << path << "\n" << content << "\n" << log();
    EXPECT_EQ(after.size(), before.size());
  }
}

TEST_F(ElasticTrainTest, AnErrorEndsAll) {
  const pid_t launcher = launch(3, "error", "", " --overwrite --lr 1e30");
  EXPECT_EQ(wait(launcher), 1);
  EXPECT_MENTIONS(log(), "the train loss became ");
  EXPECT_LACKS(log(), "; started again");
  EXPECT_MENTIONS(log(), "not started again: the job has failed: ");
}

TEST_F(ElasticTrainTest, WrongUsageIsRefusedBeforeAnythingIsWritten) {
  const auto refused = [&](const std::string& command, const std::string& part, const std::string& before = "") {
    EXPECT_EQ(run(before + command + " --run refused"), 2) << command << ": " << log();
    EXPECT_MENTIONS(log(), "ringtape: error: " + part);
    EXPECT_FALSE(fs::exists(run_folder("refused"))) << command;
  };
  const std::string alone = "ringtape " + kTraining, elastic = "ringtape launch -n 2 --elastic -- ";
  refused(alone + " --elastic", "--elastic: ranks that may come back need a launcher: ");
  refused(alone + " --elastic", "--elastic: mpirun ends all ranks when one ends; ",
          "export OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=0 "
          "OMPI_COMM_WORLD_LOCAL_SIZE=2; ");
  refused(alone + " --elastic", "--elastic: torchrun gives the ranks no store that outlives each of them; ",
          "export RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29511; ");
  refused(elastic + kTraining + " --strategy zero1", "--elastic: not with --strategy zero1");
  refused(elastic + kTraining + " --strategy dp", "--strategy dp: ");
  refused(elastic + "pretrain --method simclr --data shapes", "--elastic: not for self-supervised methods");
  refused("ringtape launch -n 4 --elastic -- " + kTraining + " --shares 2", "--shares 2: fewer than the 4 ranks");
  refused(alone + " --shares 4 --sync-bn", "--shares and --sync-bn: ");
  refused(alone + " --shares 4 --accumulate 2", "--shares and --accumulate: ");
  refused(alone + " --shares 4 --gradient-reduction bf16", "--shares and --gradient-reduction bf16: ");
  refused("ringtape pretrain --method simclr --data shapes --shares 4", "--shares: not for self-supervised methods");
}

}  // namespace
}  // namespace ringtape
