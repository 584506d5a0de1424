// What a launcher shows and keeps of its ranks' output, and that a slow reader does not stop the job: with the ringtape
// binary.
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <algorithm>

#include "comm/base/fd.h"
#include "comm/launch/launch.h"
#include "tests/support/jobs.h"

namespace ringtape {
namespace {

using namespace test;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

class LaunchOutputTest : public JobTest {
 protected:
  // A named pipe; this process has the end for reading.
  comm::Fd named_pipe(const std::string& name) const {
    const std::string path = (folder_ / name).string();
    EXPECT_EQ(::mkfifo(path.c_str(), 0600), 0);
    return comm::Fd(::open(path.c_str(), O_RDONLY | O_NONBLOCK));
  }
  static int64_t lines(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }
};

TEST_F(LaunchOutputTest, WhoReadsNothingKeepsNobodyFromTheTimeout) {
  const comm::Fd unread = named_pipe("ff");
  const auto begin = Clock::now();
  EXPECT_EQ(wait(start("ringtape launch -n 2 --timeout 1 --grace 0.2 --exec -- yes > ff 2> err")), comm::kTimedOut);
  EXPECT_LT(seconds_since(begin), 10);
  EXPECT_MENTIONS(log("err"), "did not end within the 1 s of --timeout");
  EXPECT_MENTIONS(log("err"), " lines lost: nobody read standard output");
}

TEST_F(LaunchOutputTest, WhoReadsNothingKeepsNobodyFromASignal) {
  const comm::Fd unread = named_pipe("ff");
  const pid_t launcher = start("ringtape launch -n 2 --exec -- yes > ff 2> err");
  ASSERT_GT(rank_of(launcher, 1), 0);
  pollfd readable{unread.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&readable, 1, 20'000), 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const auto begin = Clock::now();
  ::kill(launcher, SIGTERM);
  EXPECT_EQ(wait(launcher), 128 + SIGTERM);
  EXPECT_LT(seconds_since(begin), 10);
}

// The others end at once when a rank fails, and the log of the rank has all its output.
TEST_F(LaunchOutputTest, WhoReadsNothingLosesWhatTheLogsKeep) {
  const comm::Fd unread = named_pipe("ff");
  const auto begin = Clock::now();
  const std::string rank = "'test $RANK = 0 && exec sleep 100 || seq 700000 && exit 5'";
  EXPECT_EQ(wait(start("ringtape launch -n 2 --log-dir logs --exec -- sh -c " + rank + " > ff 2> err")), 5);
  EXPECT_LT(seconds_since(begin), 60);  // 100 if the launcher waits for rank 0
  EXPECT_EQ(lines(log("logs/attempt_0/rank_1.log")), 700'000);
  EXPECT_MENTIONS(log("err"), "rank 1 of 2 was the first to fail: exit code 5");
  const std::string said = log("err");
  const size_t at = said.find(" lines lost: nobody read standard output\n"), from = said.rfind("warning: ", at);
  ASSERT_NE(at, std::string::npos) << said;
  std::string shown(1 << 20, '\0');
  shown.resize(size_t(std::max<ssize_t>(::read(unread.get(), shown.data(), shown.size()), 0)));
  EXPECT_NEAR(double(std::stoll(said.substr(from + 9)) + lines(shown)), 700'000, 4000) << said;  // one portion twice
}

// The files of a control group, in which the kernel counts, are a folder here.
TEST_F(LaunchOutputTest, ARankThatTheKernelKilledForMemoryIsNamedSo) {
  const std::string root = (folder_ / "group").string();
  const auto said = [&](int kills, bool elastic) {  // before: 2
    fs::remove_all(root);
    fs::create_directories(root);
    write_file(root + "/self", "0::/\n");
    write_file(root + "/memory.max", "419430400\n");
    write_file(root + "/memory.events", "oom 2\noom_kill 2\n");
    const std::string kill = concat("echo oom_kill ", kills, " >", root, "/memory.events; kill -9 $$");
    Child launcher([&] {
      if (!std::freopen((root + "/said").c_str(), "w", stderr)) ::_exit(99);
      comm::Launch l;
      l.command = {"/bin/sh", "-c",
                   concat("test $RANK$RINGTAPE_RESTART != 10 || { ", kill, "; }; test $RANK = 1 || ",
                          elastic ? "exit 0" : "sleep 100")};
      l.local_size = 2, l.token = "0123456789abcdef", l.groups = {root, root + "/self"};
      l.elastic = elastic, l.max_restarts = elastic;
      ::_exit(comm::launch(l));
    });
    EXPECT_EQ(launcher.wait(), elastic ? 0 : 128 + SIGKILL);
    return read_file(root + "/said");
  };
  const std::string memory =
      "memory ran out: the kernel has killed 1 process of this control group for that; its limit is 400 MiB";
  EXPECT_MENTIONS(said(2, false), "\n  another process killed it, or the kernel if memory ran out");
  EXPECT_MENTIONS(said(3, false), "\n  " + memory + "\n");
  EXPECT_MENTIONS(said(3, true), ", " + memory + "; started again (1 of 1)\n");
}

TEST_F(LaunchOutputTest, WhoReadsSlowlyLosesNothing) {
  const comm::Fd slow = named_pipe("ff");
  const pid_t launcher = start("ringtape launch -n 2 --exec -- seq 300000 > ff 2> err");
  std::string shown;
  char bytes[64 << 10];
  pollfd readable{slow.get(), POLLIN, 0};
  for (ssize_t n = 1; n > 0 && ::poll(&readable, 1, 20'000) == 1;) {
    n = ::read(slow.get(), bytes, sizeof bytes);
    if (n > 0) shown.append(bytes, size_t(n));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(wait(launcher), 0);
  EXPECT_EQ(log("err"), "");
  EXPECT_EQ(lines(shown), 600'000);
  for (const char* last : {"[0] 300000\n", "[1] 300000\n"}) EXPECT_TRUE(shown.find(last) != std::string::npos) << last;
}

// The reader starts late, so that much output is left when the rank has failed.
TEST_F(LaunchOutputTest, OnePlaceForBothStreamsKeepsTheOrder) {
  const comm::Fd late = named_pipe("ff");
  const pid_t launcher = start("ringtape launch -n 1 --exec -- sh -c 'seq 150000 && exit 5' > ff 2>&1");
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  std::string both;
  char bytes[64 << 10];
  pollfd readable{late.get(), POLLIN, 0};
  for (ssize_t n = 1; n > 0 && ::poll(&readable, 1, 20'000) == 1;) {
    n = ::read(late.get(), bytes, sizeof bytes);
    if (n > 0) both.append(bytes, size_t(n));
  }
  EXPECT_EQ(wait(launcher), 5);
  EXPECT_EQ(both.find("ringtape: error: rank 0 of 1 was the first to fail"), both.find("[0] 150000\n") + 11)
      << both.size();
}

// The output of a command on a terminal.
class Terminal : public LaunchOutputTest {
 protected:
  std::string shown_on_terminal(const std::string& command) {
    winsize size{};
    size.ws_row = 24, size.ws_col = 90;
    int terminal = -1;
    std::fflush(nullptr);
    const pid_t child = ::forkpty(&terminal, nullptr, nullptr, &size);
    if (child == 0) {
      ::setenv("TERM", "xterm", 1);
      ::unsetenv("NO_COLOR");
      for (const char* name : {"RANK", "WORLD_SIZE", "RINGTAPE_THREADS"}) ::unsetenv(name);
      if (::chdir(folder_.c_str()) != 0) ::_exit(99);
      ::execl("/bin/sh", "sh", "-c", with_binary(command).c_str(), nullptr);
      ::_exit(98);
    }
    const comm::Fd ours(terminal);
    std::string out;
    char bytes[4096];
    for (ssize_t n; (n = ::read(terminal, bytes, sizeof bytes)) > 0;) out.append(bytes, size_t(n));
    EXPECT_EQ(wait(child), 0) << out;
    return out;
  }
  // Each line is clean: the bar before it has been erased.
  static void expect_whole_lines(const std::string& shown, const std::string& begin) {
    std::istringstream in(shown);
    int epochs = 0;
    for (std::string line; std::getline(in, line);) {
      if (const size_t erased = line.rfind("\033[K"); erased != std::string::npos) line.erase(0, erased + 3);
      EXPECT_LACKS(line, "batches/s");
      if (line.find(" train ") == std::string::npos || line.find("loss") == std::string::npos) continue;
      EXPECT_TRUE(line.starts_with(begin + "epoch ")) << line;
      ++epochs;
    }
    EXPECT_EQ(epochs, 2) << shown;
  }
};

TEST_F(Terminal, ShowsTheBarOfRank0) {
  const std::string training =
      "train --train-size 8000 --test-size 50 --val-size 0 --batch-size 4 --hidden 64 --workers 0 --epochs 2 ";
  const std::string launched = shown_on_terminal("ringtape launch -n 2 -- " + training + "--run a"),
                    devices = shown_on_terminal("ringtape " + training + "--devices 2 --run b");
  for (const std::string& shown : {launched, devices}) {
    EXPECT_MENTIONS(shown, "\r\033[36mepoch 1/2: ");
    EXPECT_MENTIONS(shown, "/2000 [");
    EXPECT_MENTIONS(shown, "batches/s, loss ");
    EXPECT_LACKS(shown, "1/2: 100%|\n");
  }
  EXPECT_MENTIONS(launched, "\033[31m[0]\033[0m run ");
  expect_whole_lines(launched, "\033[31m[0]\033[0m ");
  expect_whole_lines(devices, "");
  EXPECT_EQ(run("ringtape launch -n 2 -- " + training + "--limit-train-batches 500 --run c"), 0);
  EXPECT_EQ(log().find('\r'), std::string::npos) << log();
}

TEST_F(Terminal, HasNoBarWhereRank0IsNotShown) {
  const std::string shown =
      shown_on_terminal("ringtape launch -n 2 --tee 1 --exec -- sh -c 'echo bar is at ${RINGTAPE_PROGRESS:-nothing}'");
  EXPECT_MENTIONS(shown, "bar is at nothing");
}

TEST_F(LaunchOutputTest, RanksOtherThan0KeepALogOfTheirOwn) {
  ASSERT_EQ(run("ringtape launch -n 2 --log-dir logs -- " + kTraining + " --run a"), 0) << log();
  EXPECT_LACKS(log(), "[1] ");
  const std::string own = log("logs/attempt_0/rank_1.log");
  EXPECT_MENTIONS(own, "rank 1 of 2 on cpu");
  EXPECT_MENTIONS(own, "1 thread");
  EXPECT_MENTIONS(own, "core");
  for (int epoch = 1; epoch <= 5; ++epoch) EXPECT_MENTIONS(own, concat("epoch ", epoch, "/5"));
  EXPECT_MENTIONS(own, "own loss ");
  EXPECT_MENTIONS(own, "ms per step: data ");
  EXPECT_LACKS(log("logs/attempt_0/rank_0.log"), "own loss");
  ASSERT_EQ(run("env RINGTAPE_LOG=debug ringtape launch -n 2 -- " + kTraining + " --run b"), 0) << log();
  EXPECT_MENTIONS(log(), "[1] rank 1 of 2 on cpu");
}

TEST_F(LaunchOutputTest, ALogThatCannotBeWrittenIsAnError) {
  fs::create_directories(folder_ / "logs/attempt_0");
  fs::create_symlink("/dev/full", folder_ / "logs/attempt_0/rank_1.log");
  EXPECT_EQ(run("ringtape launch -n 2 --max-restarts 3 --log-dir logs --exec -- echo done"), 1) << log();
  EXPECT_MENTIONS(log(), "[0] done\n");
  EXPECT_MENTIONS(log(), "[1] done\n");
  EXPECT_MENTIONS(log(), "ringtape: error: logs/attempt_0/rank_1.log: cannot write: No space left on device\n");
  EXPECT_LACKS(log(), "restart 1");
}

TEST_F(LaunchOutputTest, ARankThatEndsWithoutJoiningIsNotWaitedFor) {
  const std::string script = "'test $RANK = 1 || exec ringtape " + kTraining + "'";
  const auto begin = Clock::now();
  EXPECT_EQ(run("ringtape launch -n 2 --exec -- sh -c " + script), 1) << log();
  EXPECT_LT(seconds_since(begin), 30);
  EXPECT_MENTIONS(log(), "ringtape: error: rank 1 (pid ");
  EXPECT_MENTIONS(log(), ") ended with exit code 0 before it joined the job");
}

// A training that a signal ended resumes where it was; one with a wrong command line is not restarted.
TEST_F(LaunchOutputTest, ATrainingThatIsStartedAgainResumes) {
  const std::string pretraining =
      "pretrain --method simclr --data shapes --train-size 200 --test-size 50 --width 4 --warmup-epochs 0 "
      "--batch-size 32 --knn-k 5 --knn-every 0 --checkpoint-steps 3 --workers 0 --threads 1 --epochs 3 ";
  for (const std::string& training : {kTraining + " --checkpoint-steps 20 --epochs 15 ", pretraining}) {
    const std::string run = training == pretraining ? "p" : "t";
    const pid_t launcher = start("ringtape launch -n 2 --max-restarts 1 -- " + training + "--run " + run);
    const pid_t rank = rank_of(launcher, 1);
    ASSERT_TRUE(within(30, [&] {
      return fs::exists(run_folder(run) / "checkpoints/last/state.json") || ended(launcher);
    })) << log();
    ::kill(rank, SIGKILL);
    EXPECT_EQ(wait(launcher), 0) << log();
    EXPECT_MENTIONS(log(), "ringtape: restart 1 of 1");
    EXPECT_MENTIONS(log(), "resume runs/" + run + "/checkpoints/step-");
    EXPECT_EQ(this->run("ringtape launch -n 2 --max-restarts 3 -- " + training + "--run " + run), 2);
    EXPECT_MENTIONS(log(), "--resume");
    EXPECT_LACKS(log(), "restart 1");
  }
  EXPECT_EQ(run("ringtape launch -n 2 --max-restarts 1 -- pretrain --method simclr"), 2);
  EXPECT_MENTIONS(log(), "--max-restarts: needs pretrain --run NAME");
}

}  // namespace
}  // namespace ringtape
