// SIGTERM at any moment of a training: the ringtape binary, with one process and with ranks.
#include <sys/stat.h>

#include <algorithm>
#include <regex>

#include "comm/base/fd.h"
#include "core/random.h"
#include "tests/support/jobs.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;
using namespace test;

class StopTest : public JobTest {
 protected:
  // The signals in these lines of /proc/PID/status, a bit each.
  static uint64_t signals_of(pid_t pid, const std::set<std::string>& lines) {
    std::ifstream status(concat("/proc/", pid, "/status"));
    uint64_t out = 0;
    for (std::string line; std::getline(status, line);)
      if (lines.contains(line.substr(0, 7))) out |= std::stoull(line.substr(7), nullptr, 16);
    return out;
  }
  // Waits until main() has begun: then the process blocks or handles SIGTERM.
  static void await_main(pid_t pid) {
    EXPECT_TRUE(within(10, [pid] {
      return (signals_of(pid, {"SigBlk:", "SigCgt:"}) >> (SIGTERM - 1) & 1) != 0 || ended(pid);
    }));
  }
  bool has_checkpoint(const std::string& run) const {
    return fs::exists(run_folder(run) / "checkpoints/last/state.json");
  }
  pid_t start_rank(int rank, const std::string& flags) {  // of two, without a launcher
    return start(concat("env RANK=", rank, " WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 ringtape ", kEndless,
                        " --run r ", flags),
                 rank == 0 ? "log" : "log1");
  }
};

// RINGTAPE_KILLS: number of signals per way of starting the training. Half of them come while it starts, and a third
// goes to only one rank.
TEST_F(StopTest, ATermAtAnyMomentLeavesWhatCanBeGoneOnWith) {
  const char* given = std::getenv("RINGTAPE_KILLS");
  const int rounds = given ? std::atoi(given) : 4;
  for (const char* way : {"ringtape ", "ringtape launch -n 2 -- ", "--devices 2"}) {
    const bool launches = way[0] == 'r', ranks = std::string(way) != "ringtape ";
    const std::string job =
        (launches ? way + kTraining : concat("ringtape ", kTraining, " ", way)) + " --checkpoint-every 0 --run ";
    const auto begin = Clock::now();
    ASSERT_EQ(run(job + "whole --overwrite"), 0) << log();
    const double whole = std::chrono::duration<double>(Clock::now() - begin).count();
    int early = 0, behind = 0, late = 0;
    for (int round = 0; round < rounds; ++round) {
      const auto random = philox(13, uint64_t(Stream::test), uint64_t(round));
      fs::remove_all(run_folder("r"));
      const pid_t started = start(job + "r");
      await_main(started);
      std::this_thread::sleep_for(
          std::chrono::duration<double>((round % 2 ? 1 : 0.2) * whole * uniform_from_bits(random.x[0])));
      const pid_t told = ranks && round % 3 == 2 ? rank_of(started, int(random.x[1] % 2)) : started;
      if (told > 0) ::kill(told, SIGTERM);
      const int code = wait(started);
      const std::string said = log();
      if (code == 0) {  // the training ended before the signal came
        ++late;
        continue;
      }
      ASSERT_EQ(code, 75) << way << ", round " << round << ": " << said;
      EXPECT_LACKS(said, "error");
      (has_checkpoint("r") ? behind : early) += 1;
      EXPECT_MENTIONS(said, has_checkpoint("r") ? "resume it with --resume --run runs/r" : "before a step was done");
      ASSERT_EQ(run(job + "r --resume"), 0) << way << ", round " << round << ": " << log();
      EXPECT_TRUE(bytes("r") == bytes("whole")) << way << ", round " << round << ": " << said;
    }
    EXPECT_LT(late, std::max(rounds, 1));
    std::printf("%s: %d stopped before the first step, %d behind a checkpoint, %d were done\n", way, early, behind,
                late);
  }
}

// The launcher ends the remaining ranks with a signal, which does not count as a requested stop.
TEST_F(StopTest, ALossThatIsNoNumberIsNoStop) {
  std::string training = kTraining;
  training.replace(training.find("0.002"), 5, "1e12");
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(run("ringtape launch -n 2 -- " + training + " --overwrite --run bad"), 1) << log();
    EXPECT_MENTIONS(log(), "the train loss became nan");
    EXPECT_LACKS(log(), "-nan");
    // Only a rank that the launcher stopped before it had seen the loss.
    const std::string said = std::regex_replace(log(), std::regex("stopped by a signal while another rank ended"), "");
    EXPECT_LACKS(said, "stopped by a signal");
    EXPECT_LACKS(said, "ringtape: stopped");
  }
}

// A lost terminal, and Slurm's --signal. Under nohup the terminal may go.
TEST_F(StopTest, OtherSignalsStopBehindACheckpointToo) {
  for (const std::string before : {"", "launch -n 2 -- "})
    for (const int signal : {SIGHUP, SIGUSR1}) {
      const pid_t training = start("ringtape " + before + kEndless + " --overwrite --run r");
      await_epoch("r", training);
      ::kill(training, signal);
      EXPECT_EQ(wait(training), 75) << before << signal << ": " << log();
      EXPECT_TRUE(has_checkpoint("r")) << before << signal;
    }
  const pid_t training = start("trap '' HUP; ringtape " + kEndless + " --overwrite --run r");
  await_epoch("r", training);
  ::kill(training, SIGHUP);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_FALSE(ended(training));
  ::kill(training, SIGTERM);
  EXPECT_EQ(wait(training), 75) << log();
}

// A validation may take longer than what a scheduler leaves: it is left out, and done when the training goes on.
TEST_F(StopTest, ASignalInAValidationDoesNotWaitForItsEnd) {
  const std::string labels = "train --hidden 512 --train-size 5500 --val-size 5000 --test-size 10 --epochs 1 ",
                    views =
                        "pretrain --method simclr --model resnet18 --width 2 --train-size 1000 --test-size 1001 "
                        "--epochs 1 ",
                    model = "--data shapes --batch-size 250 --device cpu --threads 1 ";
  for (const std::string& training : {labels, labels + "--devices 2 ", views + "--devices 2 --strategy fsdp "}) {
    ASSERT_EQ(run("ringtape " + training + model + "--overwrite --run whole"), 0) << log();
    const pid_t pid = start("ringtape " + training + model + "--overwrite --run r");
    await_epoch("r", pid);
    ::kill(pid, SIGTERM);
    EXPECT_EQ(wait(pid), 75) << log();
    EXPECT_TRUE(has_checkpoint("r")) << training;
    const std::string judged = training.starts_with("train") ? R"("split":"val")" : R"("split":"knn")";
    EXPECT_LACKS(read_file((run_folder("r") / "metrics.jsonl").string()), judged);
    ASSERT_EQ(run("ringtape " + training + model + "--resume --run r"), 0) << log();
    const auto file = [&](const char* name) {
      return read_file((run_folder(name) / "checkpoints/last/model.safetensors").string());
    };
    EXPECT_TRUE(file("r") == file("whole")) << training;
  }
}

// The last test: everything has been saved.
TEST_F(StopTest, ASignalInTheTestDoesNotWaitForItsEnd) {
  const std::string training =
      "train --data shapes --train-size 200 --val-size 100 --test-size 8000 --epochs 1 "
      "--batch-size 50 --model resnet18 --width 2 --device cpu --threads 1 --run r ";
  const pid_t pid = start("ringtape " + training);
  EXPECT_TRUE(within(20, [&] { return has_checkpoint("r") || ended(pid); }));
  ::kill(pid, SIGTERM);
  EXPECT_EQ(wait(pid), 75) << log();
  ASSERT_EQ(run("ringtape " + training + "--resume"), 0) << log();
  EXPECT_MENTIONS(log(), "test ");
}

// Launchers end the other ranks as soon as one has ended.
TEST_F(StopTest, NoRankEndsBeforeRankZeroHasItsFiles) {
  write_file((folder_ / "h").string(), "#!/bin/sh\ntouch begun; until [ -e go ]; do sleep 0.02; done\n");
  fs::permissions(folder_ / "h", fs::perms::owner_all);
  const pid_t ranks[] = {start_rank(0, "--on-save ./h"), start_rank(1, "--on-save ./h")};
  await_epoch("r", ranks[0]);
  ::kill(ranks[1], SIGUSR1);
  EXPECT_TRUE(within(20, [&] { return fs::exists(folder_ / "begun"); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_FALSE(ended(ranks[1]));
  write_file((folder_ / "go").string(), "");
  for (const pid_t pid : ranks) EXPECT_EQ(wait(pid), 75);
  EXPECT_TRUE(has_checkpoint("r"));
}

TEST_F(StopTest, ARankThatMissesAnotherSaysThatThereIsNoCheckpoint) {
  const pid_t ranks[] = {start_rank(0, ""), start_rank(1, "")};
  await_epoch("r", ranks[0]);
  ::kill(ranks[1], SIGSTOP);
  ::kill(ranks[0], SIGTERM);
  const auto pending = [&] { return signals_of(ranks[0], {"SigPnd:", "ShdPnd:"}) >> (SIGTERM - 1) & 1; };
  EXPECT_TRUE(within(10, [&] { return !pending(); }));
  ::kill(ranks[1], SIGKILL);
  EXPECT_EQ(wait(ranks[1]), -SIGKILL);
  EXPECT_EQ(wait(ranks[0]), 75) << log();
  EXPECT_MENTIONS(log(),
                  "stopped by a signal while another rank ended: no checkpoint was written; the same command "
                  "with --resume goes on from the newest one, or from the beginning: ");
  EXPECT_FALSE(has_checkpoint("r"));
}

// Signals that come while the ranks are still connecting.
TEST_F(StopTest, ARankThatWaitsForOthersEndsAtOnce) {
  const pid_t rank =
      start("env RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 ringtape " + kTraining + " --run alone");
  EXPECT_TRUE(within(20, [&] { return !fs::is_empty(folder_ / "run") || ended(rank); }));
  ::kill(rank, SIGTERM);
  EXPECT_EQ(wait(rank), 75) << log();
  EXPECT_MENTIONS(log(), "stopped by a signal before a step was done");
  EXPECT_FALSE(fs::exists(run_folder("alone")));
  // The next job would have replaced this file.
  for (const auto& notice : fs::directory_iterator(folder_ / "run")) fs::remove(notice);
}

// Standard output and error lead to one pipe, which takes 64 KiB.
class UnreadTest : public StopTest {
 protected:
  static constexpr size_t kMore = 200'000;  // bytes of lines
  pid_t start_unread(const std::string& epochs) {
    EXPECT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
    reader_ = comm::Fd(::open((folder_ / "pipe").c_str(), O_RDONLY | O_NONBLOCK));
    return start("ringtape " + kTraining + " --log-every 1 --checkpoint-every 0 --run unread --epochs " + epochs +
                 " >pipe 2>&1");
  }
  std::string lines() const { return log("runs/unread/train.log"); }
  comm::Fd reader_;
};

TEST_F(UnreadTest, ATrainingGoesOnAndStopsAtASignal) {
  const pid_t training = start_unread("1000000");
  EXPECT_TRUE(within(60, [&] { return lines().size() > kMore || ended(training); })) << lines().size();
  ::kill(training, SIGTERM);
  EXPECT_EQ(wait(training), 75);
  EXPECT_TRUE(has_checkpoint("unread"));
}

TEST_F(UnreadTest, ASlowReaderGetsEveryLine) {
  const pid_t training = start_unread("60");
  EXPECT_TRUE(within(60, [&] { return lines().find("saved  ") != std::string::npos || ended(training); }));
  std::string shown;
  char bytes[16 << 10];
  EXPECT_TRUE(within(60, [&] {
    const ssize_t size = ::read(reader_.get(), bytes, sizeof bytes);
    shown.append(bytes, size_t(std::max<ssize_t>(size, 0)));
    return size == 0;
  }));
  EXPECT_EQ(wait(training), 0);
  EXPECT_GT(shown.size(), kMore);
  EXPECT_EQ(std::count(shown.begin(), shown.end(), '\n'),
            [all = lines()] { return std::count(all.begin(), all.end(), '\n'); }());
}

}  // namespace
}  // namespace ringtape
