#pragma once
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>
#include <thread>

#include "core/random.h"
#include "tests/support/processes.h"
#include "tests/support/support.h"
#include "train/io/file.h"
#include "train/io/safetensors.h"

// Trainings as users run them, for tests: the ringtape binary and the ranks that it starts.
namespace ringtape::test {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// 70 steps per epoch, with everything that has state; sums in another order differ by at most this much.
inline const std::string kTraining =
    "train --train-size 1500 --test-size 50 --val-size 100 --batch-size 20 --hidden 16 "
    "--optimizer sgd --lr 0.002 --momentum 0.5 --ema 0.9 --schedule cosine "
    "--workers 0 --threads 1 --device cpu --epochs 5";
inline const std::string kEndless = kTraining + " --epochs 1000000 --checkpoint-every 0";

class JobTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / concat("ringtape_job_", ::getpid());
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "run");
    fs::permissions(folder_ / "run", fs::perms::owner_all);
    shared_before_ = shared_memory();
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // orphans of a job become our children, where TearDown sees them
  }
  void TearDown() override {
    EXPECT_TRUE(within(10, [] { return ::waitpid(-1, nullptr, WNOHANG) < 0; })) << "a process is left behind";
    EXPECT_TRUE(within(10, [this] { return shared_memory() == shared_before_; })) << "shared memory is left behind";
    EXPECT_TRUE(fs::is_empty(folder_ / "run"));
    std::error_code none;
    for (const auto& entry : fs::recursive_directory_iterator(folder_ / "runs", none))
      EXPECT_FALSE(is_temporary_name(entry.path().filename().string())) << entry.path();
    fs::remove_all(folder_);
  }
  static bool within(double seconds, const std::function<bool()>& so) {
    for (const auto end = Clock::now() + std::chrono::duration<double>(seconds); Clock::now() < end;) {
      if (so()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return so();
  }

  // Starts a shell command in folder_, with its output in `log`; `ringtape` is the binary.
  pid_t start(const std::string& command, const std::string& log = "log") {
    fs::remove(folder_ / log);
    std::fflush(nullptr);
    const pid_t child = ::fork();
    if (child != 0) return child;
    ::setenv("XDG_RUNTIME_DIR", (folder_ / "run").c_str(), 1);
    for (const char* name :
         {"RINGTAPE_TOKEN", "RINGTAPE_STORE", "RINGTAPE_THREADS", "RANK", "WORLD_SIZE", "LOCAL_RANK"})
      ::unsetenv(name);
    const int in = ::open("/dev/null", O_RDONLY),
              out = ::open((folder_ / log).c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (::chdir(folder_.c_str()) != 0 || ::dup2(in, 0) < 0 || ::dup2(out, 1) < 0 || ::dup2(out, 2) < 0) ::_exit(99);
    const std::string ended = with_binary(command);
    ::execl("/bin/sh", "sh", "-c", ended.c_str(), nullptr);
    ::_exit(98);
  }
  static std::string with_binary(std::string command) {
    for (size_t at = 0; (at = command.find("ringtape ", at)) != std::string::npos;
         at += std::string(RINGTAPE_BINARY).size())
      command.replace(at, 8, RINGTAPE_BINARY);
    const size_t last = command.rfind("; ");
    return last == std::string::npos ? "exec " + command
                                     : command.substr(0, last + 2) + "exec " + command.substr(last + 2);
  }
  // The exit code, or minus the signal.
  int wait(pid_t child) {
    int status = 0;
    if (!within(60, [&] { return ::waitpid(child, &status, WNOHANG) == child; })) {
      ADD_FAILURE() << "it does not end: " << log();
      ::kill(child, SIGTERM);
      ::waitpid(child, &status, 0);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  int run(const std::string& command) { return wait(start(command)); }
  std::string log(const std::string& name = "log") const {
    return fs::exists(folder_ / name) ? read_file((folder_ / name).string()) : "";
  }

  // The process of rank `rank` of a launcher, once it exists; 0: the launcher has ended.
  pid_t rank_of(pid_t launcher, int rank) {
    pid_t found = 0;
    within(20, [&] {
      std::ifstream children(concat("/proc/", launcher, "/task/", launcher, "/children"));
      for (pid_t pid; children >> pid;) {
        std::ifstream file(concat("/proc/", pid, "/environ"));
        std::stringstream text;
        text << '\0' << file.rdbuf() << '\0';
        if (text.str().find(std::string("\0LOCAL_RANK=", 12) + std::to_string(rank) + '\0') != std::string::npos)
          found = pid;
      }
      return found != 0 || ::waitid(P_PID, id_t(launcher), nullptr, WEXITED | WNOHANG | WNOWAIT) != 0 ||
             ended(launcher);
    });
    return found;
  }
  static bool ended(pid_t child) {
    siginfo_t info{};
    return ::waitid(P_PID, id_t(child), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == child;
  }

  fs::path run_folder(const std::string& name) const { return folder_ / "runs" / name; }
  std::string bytes(const std::string& run) const {
    return read_file((run_folder(run) / "exported/model.safetensors").string());
  }
  // Trains with three ranks under a launcher that restarts them, `kills` times (or RINGTAPE_KILLS times), each time
  // with a rank killed: first behind a checkpoint, then at random moments. Expects an undisturbed training's bytes.
  void expect_kills_cost_no_bit(const std::string& training, int kills, uint64_t seed) {
    const char* given = std::getenv("RINGTAPE_KILLS");
    if (given) kills = std::atoi(given);
    constexpr uint32_t kRanks = 3;
    const std::string job = concat("ringtape launch -n ", kRanks, " --max-restarts 1 -- ", training, " --run ");
    const auto begin = Clock::now();
    ASSERT_EQ(run(job + "whole"), 0) << log();
    const double whole = std::chrono::duration<double>(Clock::now() - begin).count();
    int killed = 0, resumed = 0;
    for (uint64_t draw = 0; killed < kills; ++draw) {
      const auto random = philox(seed, uint64_t(Stream::test), draw);
      const std::string name = concat("killed", draw);
      const pid_t launcher = start(job + name);
      if (draw == 0)
        EXPECT_TRUE(within(30, [&] { return fs::exists(run_folder(name) / "checkpoints/last") || ended(launcher); }));
      else std::this_thread::sleep_for(std::chrono::duration<double>(whole * uniform_from_bits(random.x[0])));
      const pid_t victim = rank_of(launcher, int(random.x[1] % kRanks));
      if (victim > 0) ::kill(victim, SIGKILL);
      ASSERT_EQ(wait(launcher), 0) << log();
      EXPECT_TRUE(bytes(name) == bytes("whole")) << name << " after " << killed << " kills: " << log();
      const std::string said = log();
      if (said.find("restart 1 of 1") != std::string::npos) ++killed;
      if (said.find("resume runs/" + name + "/checkpoints/step-") != std::string::npos) ++resumed;
      fs::remove_all(run_folder(name));
    }
    EXPECT_GE(resumed, 1);
    std::printf("%d kills, %d of them behind a checkpoint\n", killed, resumed);
  }

  // |a - b| / |b|, of all weights together.
  double difference(const std::string& a, const std::string& b) const {
    const auto file = [&](const std::string& run) {
      return read_safetensors((run_folder(run) / "exported/model.safetensors").string());
    };
    const Safetensors x = file(a), y = file(b);
    double apart = 0, all = 0;
    for (const NamedTensor& t : y.tensors) {
      const std::vector<double> p = values(x[t.name]), q = values(t.tensor);
      for (size_t i = 0; i < q.size(); ++i) apart += (p[i] - q[i]) * (p[i] - q[i]), all += q[i] * q[i];
    }
    return std::sqrt(apart / all);
  }
  void await_epoch(const std::string& run, pid_t child) {
    EXPECT_TRUE(within(30, [&] { return log().find("epoch 1/") != std::string::npos || ended(child); }))
        << run << ": " << log();
  }

  fs::path folder_;
  std::set<std::string> shared_before_;
};

}  // namespace ringtape::test
