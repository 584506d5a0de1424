// `ringtape launch`, as users run it; the ranks are small shell programs.
#include "comm/launch/launch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "comm/launch/cores.h"
#include "comm/store/socket.h"
#include "tests/support/processes.h"
#include "tests/support/support.h"
#include "train/io/file.h"
#include "train/io/process.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Words = std::vector<std::string>;

using Lines = std::multiset<std::string>;

Lines lines(const std::string& text) {
  Lines out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.insert(line);
  return out;
}

bool alive(pid_t pid) {
  if (::kill(pid, 0) != 0) return false;
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string id, name, state;
  stat >> id >> name >> state;
  return state != "Z";
}

class LaunchTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("ringtape_launch_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // orphans of a launcher become our children, where TearDown sees them
  }
  void TearDown() override {
    EXPECT_TRUE(within([] { return ::waitpid(-1, nullptr, WNOHANG) < 0; })) << "a process is left behind";
    fs::remove_all(folder_);
  }

  // Polls until it is true, for as long as a test may take on a busy machine.
  static bool within(const std::function<bool()>& so) {
    for (const auto end = Clock::now() + std::chrono::seconds(20); Clock::now() < end;) {
      if (so()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
    }
    return so();
  }

  // Starts `ringtape launch` in folder_ with these arguments; variables are NAME=value, or NAME to unset it.
  pid_t start(const Words& arguments, const Words& variables = {}) {
    Words words = {RINGTAPE_BINARY, "launch"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& w : words) argv.push_back(w.data());
    argv.push_back(nullptr);
    std::fflush(nullptr);
    const pid_t child = ::fork();
    if (child != 0) return child;
    for (const char* name : {"RINGTAPE_THREADS", "RINGTAPE_TOKEN", "RINGTAPE_LOG"}) ::unsetenv(name);
    for (const std::string& v : variables) ::putenv(::strdup(v.c_str()));
    const int null = ::open("/dev/null", O_RDONLY);
    if (::chdir(folder_.c_str()) != 0 || ::dup2(null, 0) < 0) ::_exit(99);
    if (!std::freopen("out", "w", stdout) || !std::freopen("err", "w", stderr)) ::_exit(99);
    ::execv(argv[0], argv.data());
    ::_exit(98);
  }
  static int wait(pid_t child) {  // the exit code, or minus the signal
    int status = 0;
    EXPECT_TRUE(within([&] { return ::waitpid(child, &status, WNOHANG) == child; })) << "it does not end";
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  int run(const Words& arguments, const Words& variables = {}) { return wait(start(arguments, variables)); }
  // n ranks that run a shell script.
  static Words ranks(int n, const std::string& script, const Words& flags = {}) {
    Words out = {"-n", std::to_string(n)};
    out.insert(out.end(), flags.begin(), flags.end());
    for (const char* word : {"--exec", "--", "sh", "-c"}) out.emplace_back(word);
    out.push_back(script);
    return out;
  }

  std::string file(const std::string& name) const {
    return fs::exists(folder_ / name) ? read_file((folder_ / name).string()) : "";
  }
  std::string out() const { return file("out"); }
  std::string err() const { return file("err"); }

  // It must fail with exit code 2 and one line that mentions `part`.
  void expect_usage_error(const Words& arguments, const std::string& part, const Words& variables = {}) {
    EXPECT_EQ(run(arguments, variables), 2) << part;
    const std::string said = err();
    EXPECT_TRUE(said.starts_with("ringtape: error: ")) << said;
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
    EXPECT_MENTIONS(said, part);
    EXPECT_EQ(out(), "");
  }

  fs::path folder_;
};

TEST_F(LaunchTest, EachRankIsToldItsPlace) {
  const std::string script =
      "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR $RINGTAPE_RESTART; "
      "test $RINGTAPE_STORE = $MASTER_ADDR:$MASTER_PORT; echo $?; echo $RINGTAPE_TOKEN >token_$RANK";
  ASSERT_EQ(run(ranks(3, script)), 0) << err();
  EXPECT_EQ(lines(out()), (Lines{"[0] 0 0 3 3 0 127.0.0.1 0", "[1] 1 1 3 3 0 127.0.0.1 0", "[2] 2 2 3 3 0 127.0.0.1 0",
                                 "[0] 0", "[1] 0", "[2] 0"}));
  EXPECT_EQ(err(), "");
  const std::string token = file("token_0");
  EXPECT_EQ(token.size(), 33u);
  EXPECT_EQ(token.find_first_not_of("0123456789abcdef\n"), std::string::npos);
  EXPECT_EQ(file("token_2"), token);
  ASSERT_EQ(run(ranks(1, script)), 0);
  EXPECT_NE(file("token_0"), token);
  const Words third = {"--nnodes", "3", "--node-rank", "2", "--master-addr", "head", "--master-port", "4567"};
  ASSERT_EQ(run(ranks(2, script, third), {"RINGTAPE_TOKEN=0123456789abcdef"}), 0) << err();
  EXPECT_EQ(lines(out()), (Lines{"[4] 4 0 6 2 2 head 0", "[5] 5 1 6 2 2 head 0", "[4] 0", "[5] 0"}));
  EXPECT_EQ(file("token_5"), "0123456789abcdef\n");
  Words differ = ranks(2, script, third);  // machines of 1, 3 and 2 ranks
  *std::find(differ.begin(), differ.end(), "2") = "1,3,2";
  ASSERT_EQ(run(differ, {"RINGTAPE_TOKEN=0123456789abcdef"}), 0) << err();
  EXPECT_EQ(lines(out()), (Lines{"[4] 4 0 6 2 2 head 0", "[5] 5 1 6 2 2 head 0", "[4] 0", "[5] 0"}));
}

// Two launchers, as on two hosts; each tells its ranks how many they are. The ranks of a launcher are an island, if all
// launchers have as many.
TEST_F(LaunchTest, RanksOfAHostAreAnIsland) {
  for (const char* n : {"2", "2,1"}) {
    const std::string port = std::to_string(comm::port_of(comm::listen_on("127.0.0.1", 0)));
    std::vector<pid_t> nodes;
    for (const char* node : {"0", "1"})
      nodes.push_back(start(split_words(concat("-n ", n, " --nnodes 2 --node-rank ", node,
                                               " --master-addr 127.0.0.1 --master-port ", port,
                                               " --no-pin -- bench collectives --transport tcp -b 1M -e 1M "
                                               "--iterations 2 --check --json figures"),
                                        ""),
                            {"RINGTAPE_TOKEN=0123456789abcdef"}));
    for (const pid_t node : nodes) EXPECT_EQ(wait(node), 0) << err();
    EXPECT_EQ(file("figures").find("two_level") != std::string::npos, n == std::string("2"));
    EXPECT_MENTIONS(file("figures"), n == std::string("2") ? "\"ranks\": 4" : "\"ranks\": 3");
    EXPECT_MENTIONS(file("figures"), "\"wrong\": 0");
  }
}

TEST_F(LaunchTest, ARingtapeCommandNeedsNoPath) {
  ASSERT_EQ(run({"-n", "2", "--", "list", "data"}), 0) << err();
  EXPECT_MENTIONS(out(), "[0] data:\n");
  EXPECT_MENTIONS(out(), "[1] data:\n");
  ASSERT_EQ(run({"-n", "1", "--", "/bin/echo", "--no-pin", "a_b"}), 0) << err();
  EXPECT_EQ(out(), "[0] --no-pin a_b\n");
}

TEST_F(LaunchTest, LinesStayWholeAndInTheirStream) {
  ASSERT_EQ(run(ranks(2, "printf 'a\\nb'; printf 'c\\n' >&2; printf d; printf '%100000d' 1")), 0);
  const auto shown = lines(out());
  for (const char* rank : {"[0] ", "[1] "}) {
    EXPECT_EQ(shown.count(std::string(rank) + "a"), 1u) << out();
    EXPECT_EQ(lines(err()).count(std::string(rank) + "c"), 1u) << err();
  }
  size_t bytes = 0;
  for (const std::string& line : shown) bytes += line.size() - 4;
  EXPECT_EQ(bytes, 2 * (1 + 2 + 100000u));
  ASSERT_EQ(run(ranks(3, "echo $RANK", {"--tee", "0,2"})), 0);
  EXPECT_EQ(lines(out()), (Lines{"[0] 0", "[2] 2"}));
  ASSERT_EQ(run(ranks(2, "echo x", {"--tee", "none"})), 0);
  EXPECT_EQ(out(), "");
}

TEST_F(LaunchTest, OnlyRank0ReadsTheInput) {
  write_file((folder_ / "input").string(), "hello\n");
  const std::string launch = std::string(RINGTAPE_BINARY) + " launch -n 2 --exec -- sh -c 'echo $(cat)' <input >out";
  ASSERT_EQ(std::system(("cd " + folder_.string() + " && " + launch).c_str()), 0);
  EXPECT_EQ(lines(out()), (Lines{"[0] hello", "[1] "}));
}

TEST_F(LaunchTest, TheFirstFailureIsNamedAndEndsTheOthers) {
  const std::string script =
      "echo $$ >pid_$RANK; test $RANK = 1 || exec sleep 100; "
      "while ! test -s pid_0 -a -s pid_2; do sleep 0.01; done; echo fine; echo 'no such image' >&2; exit 3";
  EXPECT_EQ(run(ranks(3, script)), 3);
  EXPECT_MENTIONS(err(), "ringtape: error: rank 1 of 3 was the first to fail: exit code 3 after ");
  EXPECT_MENTIONS(err(), "(pid " + std::to_string(std::stoi(file("pid_1"))) + " on ");
  EXPECT_MENTIONS(err(), "  its last lines:\n    no such image\n");
  EXPECT_MENTIONS(err(), "  the other ranks here: 0 killed by signal 15 (SIGTERM), 2 killed by signal 15 (SIGTERM)\n");
  for (const char* name : {"pid_0", "pid_1", "pid_2"}) EXPECT_FALSE(alive(std::stoi(file(name))));
  EXPECT_EQ(run(ranks(2, "test $RANK = 0 && kill -SEGV $$; sleep 100")), 128 + SIGSEGV);
  EXPECT_MENTIONS(err(), "rank 0 of 2 was the first to fail: killed by signal 11 (SIGSEGV)");
  EXPECT_EQ(run(ranks(2, "test $RANK = 0 && kill -KILL $$; sleep 100")), 128 + SIGKILL);
  EXPECT_MENTIONS(err(), "if memory ran out");
}

TEST_F(LaunchTest, ARankThatDoesNotEndIsKilledAfterTheGrace) {
  const std::string script =
      "trap '' TERM; echo >ready_$RANK; "
      "if test $RANK = 0; then while ! test -e ready_1; do sleep 0.01; done; exit 4; fi; "
      "while :; do sleep 0.05; done";
  const auto began = Clock::now();
  EXPECT_EQ(run(ranks(2, script, {"--grace", "0.2"})), 4);
  EXPECT_GE(Clock::now() - began, std::chrono::milliseconds(200));
  EXPECT_MENTIONS(err(), "the other ranks here: 1 killed by signal 9 (SIGKILL)");
}

TEST_F(LaunchTest, ItEndsAtTheTimeout) {
  EXPECT_EQ(run(ranks(2, "sleep 100", {"--timeout", "0.1", "--max-restarts", "5"})), 124);
  EXPECT_MENTIONS(err(), "ringtape: error: the job did not end within the 0.1 s of --timeout");
}

TEST_F(LaunchTest, SignalsArePassedOn) {
  const std::string script =
      "trap 'echo usr1' USR1; trap 'echo usr2' USR2; trap 'echo bye; exit 75' TERM; echo >ready_$RANK; "
      "while :; do sleep 0.01; done";
  const pid_t launcher = start(ranks(2, script, {"--max-restarts", "3"}));
  ASSERT_TRUE(within([&] { return fs::exists(folder_ / "ready_0") && fs::exists(folder_ / "ready_1"); }));
  for (const auto& [signal, word] : std::map<int, std::string>{{SIGUSR1, "usr1"}, {SIGUSR2, "usr2"}}) {
    ::kill(launcher, signal);
    const auto heard = [&, word = word](const std::string& rank) { return lines(out()).count(rank + word) == 1; };
    EXPECT_TRUE(within([&] { return heard("[0] ") && heard("[1] "); })) << out();
  }
  ::kill(launcher, SIGTERM);
  EXPECT_EQ(wait(launcher), 75);
  EXPECT_EQ(lines(out()).count("[0] bye") + lines(out()).count("[1] bye"), 2u) << out();
  EXPECT_MENTIONS(err(), "ringtape: stopped: exit code 75");
  EXPECT_LACKS(err(), "restart");
}

// The CUDA driver has such threads in a launcher that has asked for the GPUs.
TEST_F(LaunchTest, AnotherThreadsSignalsCount) {
  const auto code_of = [&](const std::string& script, int signal) {
    test::Child launcher([&] {
      std::thread([] { std::this_thread::sleep_for(std::chrono::hours(1)); }).detach();
      comm::Launch l;
      l.command = {"sh", "-c", script}, l.local_size = 2, l.token = "token", l.timeout = comm::Seconds(60);
      ::_exit(comm::launch(l));
    });
    if (signal != 0) {
      EXPECT_TRUE(within([&] { return fs::exists(folder_ / "ready_0") && fs::exists(folder_ / "ready_1"); }));
      launcher.kill(signal);
    }
    return launcher.wait();
  };
  EXPECT_EQ(code_of("exit 0", 0), 0);
  const std::string stops = "; trap 'exit 75' TERM; echo >ready_$RANK; while :; do sleep 0.01; done";
  EXPECT_EQ(code_of(concat("cd ", folder_.string(), stops), SIGTERM), 75);
}

// A rank that stops before all have met leaves a gap, of which the others complain.
TEST_F(LaunchTest, OfRanksThatEndedTogetherOneThatWasToldToStopIsTheCause) {
  const std::string script =
      "echo $$ >pid_$RANK; while ! test -e go; do sleep 0.01; done; "
      "if test $RANK = 0; then exit 1; else exit 75; fi";
  const pid_t launcher = start(ranks(2, script));
  const auto ended = [&](const std::string& name) {
    const std::string pid = file(name);
    return pid.ends_with("\n") && read_file(concat("/proc/", std::stoi(pid), "/stat")).find(") Z ") != pid.npos;
  };
  ASSERT_TRUE(within([&] { return fs::exists(folder_ / "pid_0") && fs::exists(folder_ / "pid_1"); }));
  ::kill(launcher, SIGSTOP);
  std::ofstream(folder_ / "go").flush();
  EXPECT_TRUE(within([&] { return ended("pid_0") && ended("pid_1"); }));
  ::kill(launcher, SIGCONT);
  EXPECT_EQ(wait(launcher), 75);
  EXPECT_MENTIONS(err(), "ringtape: stopped: exit code 75, first on rank 1");
}

TEST_F(LaunchTest, ASecondInterruptKills) {
  const pid_t launcher = start(ranks(2, "trap 'echo int' INT; echo >ready_$RANK; while :; do sleep 0.01; done"));
  ASSERT_TRUE(within([&] { return fs::exists(folder_ / "ready_0") && fs::exists(folder_ / "ready_1"); }));
  ::kill(launcher, SIGINT);
  EXPECT_TRUE(within([&] { return lines(out()).count("[0] int") == 1 && lines(out()).count("[1] int") == 1; }))
      << out();
  ::kill(launcher, SIGINT);
  EXPECT_EQ(wait(launcher), 128 + SIGKILL);
}

// Neither the ranks, nor the processes that they started, nor those that left their process groups.
TEST_F(LaunchTest, NothingLivesOn) {
  const std::string script =
      "setsid sh -c 'echo $$ >far_0; exec sleep 100' & sleep 100 & echo $! >near_0; "
      "while ! test -s far_0; do sleep 0.01; done; exit 0";
  EXPECT_EQ(run(ranks(1, script)), 0) << err();
  for (const char* name : {"far_0", "near_0"}) EXPECT_FALSE(alive(std::stoi(file(name)))) << name;
}

TEST_F(LaunchTest, NothingLivesOnWhenTheLauncherIsKilled) {
  const std::string script =
      "trap '' TERM INT HUP; sh -c 'trap \"\" TERM; sleep 100' & echo $! >child_$RANK; echo $$ >rank_$RANK; "
      "while :; do sleep 1; done";
  const pid_t launcher = start(ranks(3, script));
  std::vector<pid_t> all;
  for (int r = 0; r < 3; ++r)
    for (const char* name : {"child_", "rank_"}) {
      const std::string pid = name + std::to_string(r);
      ASSERT_TRUE(within([&] { return file(pid).ends_with('\n'); }));
      all.push_back(std::stoi(file(pid)));
    }
  for (const pid_t pid : all) EXPECT_TRUE(alive(pid));
  ::kill(launcher, SIGKILL);
  EXPECT_EQ(wait(launcher), -SIGKILL);
  for (const pid_t pid : all) EXPECT_TRUE(within([&] { return !alive(pid); })) << pid;
}

TEST_F(LaunchTest, AFailureStartsAllRanksAgain) {
  const std::string script = "echo $RINGTAPE_RESTART; test $RANK = 0 -o $RINGTAPE_RESTART = 2";
  ASSERT_EQ(run(ranks(2, script, {"--max-restarts", "2", "--log-dir", "logs/a"})), 0) << err();
  EXPECT_MENTIONS(err(), "ringtape: restart 1 of 2\n");
  EXPECT_MENTIONS(err(), "ringtape: restart 2 of 2\n");
  EXPECT_MENTIONS(err(), "  its log: logs/a/attempt_0/rank_1.log\n");
  for (int attempt = 0; attempt < 3; ++attempt)
    EXPECT_EQ(file("logs/a/attempt_" + std::to_string(attempt) + "/rank_1.log"), std::to_string(attempt) + "\n");
  EXPECT_EQ(std::distance(fs::recursive_directory_iterator(folder_ / "logs"), {}), 1 + 3 * 3);
  EXPECT_EQ(run(ranks(2, "test $RANK = 0 || exit $((RINGTAPE_RESTART + 10))", {"--max-restarts", "1"})), 11);
  EXPECT_LACKS(err(), "restart 2");
}

TEST_F(LaunchTest, WrongUsage) {
  expect_usage_error({}, "needs a command after --");
  expect_usage_error({"-n", "2", "--"}, "needs a command after --");
  expect_usage_error({"-n", "2", "train", "--epochs", "3"},
                     "unexpected argument 'train'; the command to run comes after --");
  expect_usage_error({"--", "train"}, "needs -n, the number of ranks");
  expect_usage_error({"-n", "0", "--", "train"}, "-n: expected a whole number from 1 to 4096, or one for each machine");
  expect_usage_error({"-n", "2,", "--", "train"}, "as in 4,2, got '2,'");
  expect_usage_error({"-n", "4000,97", "--", "train"}, "as in 4,2, got '4000,97'");
  expect_usage_error({"-n", "2,1", "--", "train"}, "-n 2,1: has 2 numbers of ranks, but there is 1 machine");
  expect_usage_error({"-n", "two", "--", "train"}, "got 'two'");
  expect_usage_error({"-n", "1", "--nnode", "2", "--", "train"}, "did you mean --nnodes?");
  expect_usage_error({"-n", "1", "--nnodes", "2", "--node-rank", "2", "--", "train"},
                     "--node-rank: expected a whole number from 0 to 1, got '2'");
  expect_usage_error({"-n", "1", "--nnodes", "2", "--", "train"}, "--nnodes 2: also needs --node-rank");
  const Words two = {"-n",    "1",  "--nnodes", "2", "--node-rank", "1", "--master-addr", "a", "--master-port",
                     "29500", "--", "train"};
  expect_usage_error(two, "needs the environment variable RINGTAPE_TOKEN");
  expect_usage_error({"-n", "2", "--tee", "2", "--", "train"}, "--tee 2: expected all, none or ranks from 0 to 1");
  expect_usage_error({"-n", "2", "--tee", "0,", "--", "train"}, "--tee 0,: expected all");
  expect_usage_error({"-n", "2", "--grace", "-1", "--", "train"}, "--grace: expected a number from 0 to");
  expect_usage_error({"-n", "2", "--max-restarts", "1", "--", "train"}, "--max-restarts: needs train --run NAME");
  expect_usage_error(ranks(2, "true", {"--timeout", "soon"}), "--timeout: expected a number");
  expect_usage_error({"-n", "2", "--exec", "--", "no_such_program"},
                     "cannot run no_such_program: No such file or directory");
}

TEST_F(LaunchTest, APortInUseIsNamed) {
  const pid_t first = start(ranks(1, "echo $MASTER_PORT >port; while ! test -e done; do sleep 0.01; done"));
  ASSERT_TRUE(within([&] { return file("port").ends_with('\n'); }));
  const std::string port = std::to_string(std::stoi(file("port")));
  EXPECT_EQ(run(ranks(1, "true", {"--master-port", port})), 1);
  EXPECT_MENTIONS(err(), "cannot listen on 127.0.0.1, port " + port +
                             ": Address already in use; choose another port with --master-port");
  write_file((folder_ / "done").string(), "");
  EXPECT_EQ(wait(first), 0);
}

TEST(LaunchCores, AreDividedEvenly) {
  using Cores = std::vector<std::vector<int>>;
  EXPECT_EQ(comm::divide_cores({0, 4, 1, 5, 2}, 2), (Cores{{0, 4, 1}, {5, 2}}));
  EXPECT_EQ(comm::divide_cores({3}, 1), (Cores{{3}}));
  EXPECT_EQ(comm::divide_cores({0, 1}, 3), (Cores{{}, {}, {}}));
  EXPECT_EQ(comm::divide_threads(5, 2), (std::vector<int>{3, 2}));
  EXPECT_EQ(comm::divide_threads(1, 2), (std::vector<int>{1, 1}));
}

TEST_F(LaunchTest, RanksHaveCoresAndThreadsOfTheirOwn) {
  const size_t cores = comm::usable_cores().size(), each = std::max<size_t>(cores / 2, 1);
  const std::string script = "unset OMP_NUM_THREADS; test $RANK = 0 || echo $(nproc) $RINGTAPE_THREADS";
  run(ranks(2, script));
  EXPECT_MENTIONS(out(), "[1] " + std::to_string(cores >= 2 ? each : cores) + " " + std::to_string(each) + "\n");
  run(ranks(2, script, {"--no-pin"}));
  EXPECT_MENTIONS(out(), "[1] " + std::to_string(cores) + " " + std::to_string(each) + "\n");
  run(ranks(2, script), {"RINGTAPE_THREADS=7"});
  EXPECT_MENTIONS(out(), " 7\n");
}

}  // namespace
}  // namespace ringtape
