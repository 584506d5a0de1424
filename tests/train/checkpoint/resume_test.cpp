// A training that is stopped, killed or out of disk space, and resumes: the ringtape binary, as users run it.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/random.h"
#include "tests/support/support.h"
#include "train/io/file.h"
#include "train/io/json.h"
#include "train/io/safetensors.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// 20 steps per epoch; includes everything that draws random numbers or has state.
const std::vector<std::string> kTraining = {
    "train",  "--train-size",    "711", "--test-size",  "50", "--val-size",  "71",  "--epochs",
    "4",      "--batch-size",    "32",  "--hidden",     "24", "--dropout",   "0.2", "--schedule",
    "cosine", "--warmup-epochs", "0.5", "--accumulate", "2",  "--precision", "f16", "--clip-grad-norm",
    "1",      "--ema",           "0.9", "--log-every",  "7",  "--threads",   "1",   "--checkpoint-steps",
    "3"};

class ResumeTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("ringtape_resume_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // Starts the binary in folder_, with its output in `log`; before() runs in the new process.
  template <class Before> pid_t start(const std::vector<std::string>& extra, Before&& before) {
    std::vector<std::string> words = {RINGTAPE_BINARY};
    words.insert(words.end(), kTraining.begin(), kTraining.end());
    words.insert(words.end(), extra.begin(), extra.end());
    std::vector<char*> argv;
    for (std::string& w : words) argv.push_back(w.data());
    argv.push_back(nullptr);
    std::fflush(nullptr);  // otherwise both processes would write buffered data
    const pid_t child = ::fork();
    if (child != 0) return child;
    if (::chdir(folder_.c_str()) != 0 || !std::freopen("log", "w", stdout) || ::dup2(1, 2) < 0) ::_exit(99);
    before();
    ::execv(argv[0], argv.data());
    ::_exit(98);
  }
  pid_t start(const std::vector<std::string>& extra) {
    return start(extra, [] {});
  }
  static int wait(pid_t child) {  // the exit code, or minus the signal
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  int run(const std::vector<std::string>& extra) { return wait(start(extra)); }

  std::string log() const { return read_file((folder_ / "log").string()); }
  fs::path run_folder(const std::string& name) const { return folder_ / "runs" / name; }
  std::string weights(const std::string& run) const {
    return read_file((run_folder(run) / "exported/model.safetensors").string());
  }

  // Lines of metrics.jsonl without values that depend on time or memory.
  std::vector<Json> metrics(const std::string& run) const {
    std::vector<Json> out;
    std::ifstream file(run_folder(run) / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      Json& m = out.emplace_back(parse_json(line));
      for (const char* key : {"seconds", "images_per_s", "data_s", "forward_s", "backward_s", "optimizer_s",
                              "peak_bytes", "process_bytes", "train_s", "run", "metrics_crc32"})
        m.erase(key);
    }
    return out;
  }
  void expect_same_run(const std::string& run, const std::string& reference) {
    EXPECT_TRUE(weights(run) == weights(reference));
    EXPECT_EQ(metrics(run), metrics(reference));
    const auto lines = [&](const std::string& name) {
      const std::string text = read_file((run_folder(name) / "metrics.csv").string());
      return std::count(text.begin(), text.end(), '\n');
    };
    EXPECT_EQ(lines(run), lines(reference));
  }
  // From a checkpoint within an epoch, a training of these settings ends as if it had not been stopped.
  void goes_on(std::vector<std::string> settings) {
    settings.insert(settings.end(), {"--run", "whole", "--keep", "9"});
    ASSERT_EQ(run(settings), 0) << log();
    fs::copy(run_folder("whole"), run_folder("copy"), fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    const std::vector<std::string> all = checkpoints("copy");
    for (size_t i = all.size() - 5; i < all.size(); ++i) fs::remove_all(run_folder("copy") / "checkpoints" / all[i]);
    ASSERT_EQ(run({"--run", "copy", "--resume"}), 0) << log();
    EXPECT_MENTIONS(log(), "/checkpoints/" + all[all.size() - 6]);
    expect_same_run("copy", "whole");
  }
  std::vector<std::string> checkpoints(const std::string& run) const {
    std::vector<std::string> out;
    for (const auto& entry : fs::directory_iterator(run_folder(run) / "checkpoints"))
      if (!entry.is_symlink()) out.push_back(entry.path().filename().string());
    std::sort(out.begin(), out.end());
    return out;
  }

  fs::path folder_;
};

// Kills trainings at random moments until the number of kills is reached; each training is resumed until it is done.
// RINGTAPE_KILLS=500 is the long form.
TEST_F(ResumeTest, KilledAtAnyMomentItEndsWithTheSameWeights) {
  const char* wanted = std::getenv("RINGTAPE_KILLS");
  const int kills = wanted ? std::atoi(wanted) : 5;
  const auto begin = Clock::now();
  ASSERT_EQ(run({"--run", "whole"}), 0) << log();
  const double whole = std::chrono::duration<double>(Clock::now() - begin).count();
  int killed = 0;
  uint64_t draw = 0;
  for (int number = 0; killed < kills; ++number) {
    const std::string name = "killed" + std::to_string(number);
    for (bool done = false; !done;) {
      const pid_t child = start({"--run", name, "--resume"});
      if (killed < kills) {
        const double delay = 0.7 * whole * uniform_from_bits(philox(7, uint64_t(Stream::test), draw++).x[0]);
        std::this_thread::sleep_for(std::chrono::duration<double>(delay));
        ::kill(child, SIGKILL);
      }
      const int code = wait(child);
      ASSERT_TRUE(code == 0 || code == -SIGKILL) << code << " after " << killed << " kills: " << log();
      done = code == 0;
      killed += code == -SIGKILL;
    }
    expect_same_run(name, "whole");
    for (const std::string& c : checkpoints(name)) EXPECT_FALSE(is_temporary_name(c)) << c;
    fs::remove_all(run_folder(name));
  }
  std::printf("%d kills, 0 unusable\n", killed);
  std::fflush(stdout);
}

TEST_F(ResumeTest, ASignalStopsItBehindAStepWithACheckpoint) {
  ASSERT_EQ(run({"--run", "whole"}), 0) << log();
  for (int signal : {SIGTERM, SIGINT}) {
    const std::string name = signal == SIGTERM ? "term" : "int";
    const pid_t child = start({"--run", name, "--checkpoint-every", "0", "--checkpoint-steps", "0", "--epochs", "4"});
    while (!fs::exists(run_folder(name) / "metrics.csv")) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    ::kill(child, signal);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ::kill(child, signal);  // as a scheduler and a launcher both send it
    const int code = wait(child);
    if (code == 0) continue;  // the training ended before the signal came
    ASSERT_EQ(code, 75) << log();
    EXPECT_MENTIONS(log(), "resume it with --resume --run runs/" + name);
    EXPECT_EQ(checkpoints(name).size(), 1u);
    EXPECT_FALSE(fs::exists(run_folder(name) / "exported/model.safetensors"));
    ASSERT_EQ(run({"--run", name, "--resume"}), 0) << log();
    EXPECT_MENTIONS(log(), "resume runs/" + name + "/checkpoints/step-");
    expect_same_run(name, "whole");
  }
}

TEST_F(ResumeTest, LarsGoesOnAsItWould) {
  goes_on({"--optimizer", "lars", "--lr", "0.01", "--weight-decay", "0.01", "--schedule-by", "epoch"});
}

// Also from a step that has its validation before it, and where that validation was the best.
TEST_F(ResumeTest, ValidationsWithinAnEpochGoOnAsTheyWould) {
  goes_on({"--val-every", "6", "--patience", "3", "--best-by", "loss", "--export", "best"});
  std::vector<std::string> steps, expected;
  for (const Json& m : metrics("whole"))
    if (m["split"] == "val") steps.push_back(m["step"].text());
  for (int step = 1; step <= 80; ++step)
    if (step % 6 == 0 || step % 20 == 0) expected.push_back(std::to_string(step));
  EXPECT_EQ(steps, expected);
}

// Also where it ended when a validation was due, and with an epoch.
TEST_F(ResumeTest, ATrainingThatALimitEndedHasTheValidationsOfAWholeOne) {
  const std::vector<std::string> settings = {"--val-every", "7", "--schedule", "constant", "--run"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = settings;
    all.insert(all.end(), more.begin(), more.end());
    return run(all);
  };
  ASSERT_EQ(with({"whole"}), 0) << log();
  for (const char* last : {"14", "20"}) {
    const std::string name = concat("until", last);
    ASSERT_EQ(with({name, "--max-steps", last}), 0) << log();
    ASSERT_EQ(with({name, "--resume", "--max-steps", "0"}), 0) << log();
    expect_same_run(name, "whole");
  }
}

TEST_F(ResumeTest, MixedImagesAreMixedAsTheyWouldBe) {
  goes_on({"--mixup", "0.3", "--cutmix", "1", "--policy", "trivialaugment", "--erasing", "0.3", "--crop-low", "0.4"});
}

TEST_F(ResumeTest, DamagedCheckpointsAreNamedAndTheOneBeforeIsUsed) {
  ASSERT_EQ(run({"--run", "whole", "--keep", "5"}), 0) << log();
  const fs::path folder = run_folder("whole") / "checkpoints";
  fs::copy(run_folder("whole"), run_folder("copy"), fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  const std::vector<std::string> all = checkpoints("copy");
  ASSERT_GE(all.size(), 5u);
  const auto file = [&](size_t from_newest, const char* name) {
    return run_folder("copy") / "checkpoints" / all[all.size() - 1 - from_newest] / name;
  };
  fs::resize_file(file(0, "model.safetensors"), fs::file_size(file(0, "model.safetensors")) - 1);
  {
    std::fstream flipped(file(1, "optimizer.safetensors"), std::ios::in | std::ios::out | std::ios::binary);
    flipped.seekp(-5, std::ios::end);
    flipped.put(0x55);
  }
  std::string state = read_file(file(2, "state.json").string());
  state[state.find("\"counter\": ") + 11] ^= 1;
  write_file(file(2, "state.json").string(), state);
  fs::remove(file(3, "optimizer.safetensors"));
  ASSERT_EQ(run({"--run", "copy", "--resume"}), 0) << log();
  for (size_t i = 0; i < 4; ++i)
    EXPECT_MENTIONS(log(), "checkpoint not used: runs/copy/checkpoints/" + all[all.size() - 1 - i]);
  EXPECT_MENTIONS(log(), "resume runs/copy/checkpoints/" + all[all.size() - 5]);
  expect_same_run("copy", "whole");
}

TEST_F(ResumeTest, KeepsTheNewestAndTheBest) {
  ASSERT_EQ(run({"--run", "k", "--keep", "1"}), 0) << log();
  const fs::path folder = run_folder("k") / "checkpoints";
  const Json state = parse_json(read_file((folder / "last/state.json").string()))["state"];
  EXPECT_EQ(state["epoch"], 4);
  EXPECT_EQ(state["step"], 80);
  EXPECT_EQ(fs::read_symlink(folder / "last"), "step-00000080");
  double best = 0;
  int64_t step = 0;
  for (const Json& m : metrics("k"))
    if (m["split"] == "val" && m["top1"].get<double>() > best)
      best = m["top1"].get<double>(), step = m["step"].get<int64_t>();
  EXPECT_EQ(parse_json(read_file((folder / "best/state.json").string()))["state"]["step"], step);
  EXPECT_EQ(state["best"]["step"], step);
  EXPECT_EQ(checkpoints("k").size(), step == 80 ? 1u : 2u);
}

TEST_F(ResumeTest, ResumingTakesTheRunsSettings) {
  EXPECT_EQ(run({"--resume"}), 2);
  EXPECT_MENTIONS(log(), "--resume: needs --run");
  ASSERT_EQ(run({"--run", "s", "--epochs", "2"}), 0) << log();
  EXPECT_EQ(run({"--run", "s", "--resume", "--lr", "0.5"}), 2);
  EXPECT_MENTIONS(log(), "--lr 0.5: runs/s was trained with 0.001 so far");
  EXPECT_EQ(run({"--run", "s", "--resume", "--epochs", "1"}), 2);
  EXPECT_MENTIONS(log(), "has already trained 2");
  EXPECT_EQ(run({"--run", "s", "--resume", "--overwrite"}), 2);
  ASSERT_EQ(run({"--run", "s", "--resume", "--epochs", "3"}), 0) << log();  // trains further
  EXPECT_EQ(metrics("s").back()["step"], 60);
  ASSERT_EQ(run({"--run", "s", "--resume", "--epochs", "3"}), 0) << log();  // already done: only tests again
  EXPECT_EQ(metrics("s").back()["step"], 60);
}

// One process as the second of two CPU devices.
TEST_F(ResumeTest, AnyCpuDeviceIsAsGoodAsTheFirst) {
  ASSERT_EQ(run({"--run", "whole", "--export", "best", "--epochs", "2"}), 0) << log();
  ASSERT_EQ(run({"--run", "r", "--export", "best", "--epochs", "2", "--device", "cpu:1"}), 0) << log();
  ASSERT_EQ(run({"--run", "r", "--export", "best", "--epochs", "2", "--device", "cpu:1", "--resume"}), 0) << log();
  const auto tensors = [&](const std::string& run) {
    return read_safetensors((run_folder(run) / "exported/model.safetensors").string()).tensors;
  };
  const auto r = tensors("r"), whole = tensors("whole");
  ASSERT_EQ(r.size(), whole.size());
  for (size_t i = 0; i < r.size(); ++i)
    EXPECT_EQ(test::values(r[i].tensor), test::values(whole[i].tensor)) << r[i].name;
  for (const char* command : {"evaluate r", "embed r --out f.npy", "evaluate r --device cpu:1",
                              "embed r --device cpu:1 --out f.npy", "evaluate r --device cpu:1 --protocol knn"}) {
    const std::string line = concat("cd ", folder_.string(), " && ", RINGTAPE_BINARY, " ", command, " >out 2>&1");
    EXPECT_EQ(std::system(line.c_str()), 0) << command << read_file((folder_ / "out").string());
  }
}

// Simulates a full disk: no file may exceed a limit that is smaller than a checkpoint's weights.
class FullDiskTest : public ResumeTest {
 protected:
  // It must fail, with one line at the end that says what cannot be written.
  void expect_full(const std::vector<std::string>& extra) {
    const pid_t child = start(extra, [] {
      const rlimit limit{100'000, 100'000};
      ::setrlimit(RLIMIT_FSIZE, &limit);
    });
    EXPECT_EQ(wait(child), 1);
    const std::string said = log(), kError = "ringtape: error: ";
    const size_t at = said.find(kError);
    ASSERT_NE(at, std::string::npos) << said;
    EXPECT_EQ(said.find('\n', at), said.size() - 1) << said;
    EXPECT_MENTIONS(said.substr(at), "model.safetensors: cannot write: File too large");
  }
};

TEST_F(FullDiskTest, TheCheckpointsThereAreStay) {
  ASSERT_EQ(run({"--run", "f", "--epochs", "1"}), 0) << log();
  const std::vector<std::string> before = checkpoints("f");
  expect_full({"--run", "f", "--resume", "--epochs", "2"});
  EXPECT_EQ(checkpoints("f"), before);
  EXPECT_EQ(run({"--run", "f", "--resume", "--epochs", "2"}), 0) << log();
}

TEST_F(FullDiskTest, NothingIsHalfWritten) {
  ASSERT_EQ(run({"--run", "whole", "--epochs", "1"}), 0) << log();
  expect_full({"--run", "g", "--epochs", "1"});
  EXPECT_EQ(checkpoints("g"), std::vector<std::string>());
  EXPECT_FALSE(fs::exists(run_folder("g") / "exported/model.safetensors"));
  ASSERT_EQ(run({"--run", "g", "--resume", "--epochs", "1"}), 0) << log();
  expect_same_run("g", "whole");
}

}  // namespace
}  // namespace ringtape
