// What happens to a job when one of its processes fails: the job is `bench collectives`, started as by torchrun.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <random>
#include <thread>

#include "comm/base/deadline.h"
#include "tests/support/processes.h"
#include "tests/support/support.h"
#include "train/io/file.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;
using comm::Clock;
using comm::Deadline;
using comm::Seconds;

class FaultsTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / concat("ringtape_faults_", ::getpid());
    fs::create_directories(folder_ / "run");
    fs::permissions(folder_ / "run", fs::perms::owner_all);
    shared_before_ = test::shared_memory();
  }
  void TearDown() override {
    EXPECT_TRUE(fs::is_empty(folder_ / "run"));
    for (const pid_t pid : pids_)
      if (pid > 0) ::kill(pid, SIGKILL), ::waitpid(pid, nullptr, 0);
    EXPECT_EQ(test::shared_memory(), shared_before_);
    fs::remove_all(folder_);
  }

  // Rank r of `size`; `flags` of bench collectives.
  void start(int r, int size, const std::string& flags) {
    fs::remove(output(r));
    const pid_t pid = ::fork();
    if (pid == 0) {
      const int out = ::open(output(r).c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      ::dup2(out, 1), ::dup2(out, 2);
      const std::string command =
          concat("exec env RANK=", r, " LOCAL_RANK=", r, " WORLD_SIZE=", size, " LOCAL_WORLD_SIZE=", size,
                 " MASTER_ADDR=127.0.0.1 MASTER_PORT=1 XDG_RUNTIME_DIR=", (folder_ / "run").string(),
                 " RINGTAPE_THREADS=1 " RINGTAPE_BINARY " bench collectives ", flags);
      ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      ::_exit(127);
    }
    pids_.resize(std::max(pids_.size(), size_t(r) + 1), -1);
    pids_[size_t(r)] = pid;
  }
  std::string output(int r) const { return (folder_ / concat("out.", r)).string(); }
  std::string said(int r) const { return read_file(output(r)); }

  // Waits until rank 0 has begun to measure.
  void await_begin() {
    for (const Deadline late(Seconds(30)); !late.passed(); std::this_thread::sleep_for(Seconds(0.01)))
      if (fs::exists(output(0)) && said(0).find("(elements)") != std::string::npos) return;
    ADD_FAILURE() << "the job did not begin: " << said(0);
  }

  // The exit code; -1: it did not end in time.
  int await_end(int r, const Deadline& deadline) {
    int status = 0;
    for (; !deadline.passed(); std::this_thread::sleep_for(Seconds(0.002)))
      if (::waitpid(pids_[size_t(r)], &status, WNOHANG) > 0) {
        pids_[size_t(r)] = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      }
    return -1;
  }

  fs::path folder_;
  std::set<std::string> shared_before_;
  std::vector<pid_t> pids_;
};

constexpr const char* kLong = " -b 256K -e 256K --iterations 100000000 --warmup 0";

// RINGTAPE_KILLS: number of kills per transport; the times are printed.
TEST_F(FaultsTest, AKilledRankIsNamedByAllOthers) {
  const char* given = std::getenv("RINGTAPE_KILLS");
  const int kills = given ? std::atoi(given) : 2, size = 4;
  std::mt19937 random(1);
  for (const std::string transport : {"shm", "tcp"}) {
    std::vector<double> times;
    for (int kill = 0; kill < kills; ++kill) {
      for (int r = 0; r < size; ++r) start(r, size, "--transport " + transport + kLong);
      await_begin();
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 300));
      const int victim = int(random() % size);
      const pid_t pid = pids_[size_t(victim)];
      const auto begin = Clock::now();
      ::kill(pid, SIGKILL);
      for (int r = 0; r < size; ++r) {
        const int code = await_end(r, Deadline(Seconds(10)));
        EXPECT_EQ(code, r == victim ? 128 + SIGKILL : 1) << transport << " rank " << r;
        if (r == victim) continue;
        EXPECT_MENTIONS(said(r), concat("rank ", victim, " (pid ", pid));
      }
      times.push_back(Seconds(Clock::now() - begin).count());
    }
    std::sort(times.begin(), times.end());
    std::printf("%s: %d kills, all others ended after %.3f s (median) to %.3f s (at most)\n", transport.c_str(), kills,
                times[times.size() / 2], times.back());
  }
}

TEST_F(FaultsTest, AStoppedRankIsNamedAtTheDeadline) {
  const int size = 3, victim = 1;
  for (int r = 0; r < size; ++r) start(r, size, std::string("--transport shm --timeout 2") + kLong);
  await_begin();
  std::this_thread::sleep_for(Seconds(0.2));
  const auto begin = Clock::now();
  ::kill(pids_[victim], SIGSTOP);
  for (int r = 0; r < size; r += 2) {
    EXPECT_EQ(await_end(r, Deadline(Seconds(20))), 1) << r;
    EXPECT_MENTIONS(said(r), concat(victim, "  "));
    EXPECT_MENTIONS(said(r), "no answer within 1 s");
    EXPECT_MENTIONS(said(r), "all_reduce #");
  }
  std::printf("%.1f s after SIGSTOP, with a deadline of 2 s\n", Seconds(Clock::now() - begin).count());
}

TEST_F(FaultsTest, RanksThatAskForOtherSizesAreToldSo) {
  for (const std::string transport : {"shm", "tcp"}) {
    start(0, 2, "--transport " + transport + " -b 1K -e 1K");
    start(1, 2, "--transport " + transport + " -b 2K -e 2K");
    for (int r = 0; r < 2; ++r) {
      EXPECT_EQ(await_end(r, Deadline(Seconds(30))), 1);
      EXPECT_MENTIONS(said(r), "the ranks make different calls");
      EXPECT_MENTIONS(said(r), "f32, 256 elements");
      EXPECT_MENTIONS(said(r), "f32, 512 elements");
    }
  }
}

TEST_F(FaultsTest, WhatEndsOneRankIsToldToAll) {
  start(0, 2, "--transport shm -b 1K -e 1K");
  start(1, 2, "--transport shm -b 1K -e 1K --ranks 3");
  EXPECT_EQ(await_end(1, Deadline(Seconds(30))), 2);
  EXPECT_EQ(await_end(0, Deadline(Seconds(30))), 1);
  EXPECT_MENTIONS(said(0), ": --ranks 3: this job has 2 ranks");
}

TEST_F(FaultsTest, ARankThatDoesNotComeIsNamed) {
  start(0, 2, "--transport shm -b 1K -e 1K --join-timeout 1");
  EXPECT_EQ(await_end(0, Deadline(Seconds(30))), 1);
  EXPECT_MENTIONS(said(0), "rank 1 of 2 did not join within 1 s");
}

}  // namespace
}  // namespace ringtape
