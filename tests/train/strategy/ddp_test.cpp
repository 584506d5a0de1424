// Data-parallel training, as users run it: the ringtape binary, with ranks that are killed, stopped and started
// wrongly.
#include <algorithm>

#include "tests/support/jobs.h"
#include "train/io/json.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;
using namespace test;
using Clock = std::chrono::steady_clock;

class DdpTest : public JobTest {
 protected:
  std::vector<double> training_losses(const std::string& run) const {  // of each epoch
    std::vector<double> out;
    std::ifstream file(run_folder(run) / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      const Json m = parse_json(line);
      if (m["split"].get<std::string>() == "train") out.push_back(m["loss"].get<double>());
    }
    return out;
  }
};

// --deterministic is not needed: the same number of ranks adds up in the same order.
TEST_F(DdpTest, AKilledRankCostsARestartAndNoBit) {
  expect_kills_cost_no_bit(kTraining + " --dropout 0.2 --checkpoint-steps 25", 2, 11);
}

TEST_F(DdpTest, StoppedItGoesOnWithAnyNumberOfRanks) {
  ASSERT_EQ(run("ringtape " + kTraining + " --run alone"), 0) << log();
  ASSERT_EQ(run("ringtape " + kTraining + " --devices 2 --run pair"), 0) << log();
  EXPECT_LE(difference("pair", "alone"), 1e-6);
  for (const bool launcher : {true, false}) {
    const pid_t job = start("ringtape " + kTraining + " --devices 2 --checkpoint-every 0 --run stopped --overwrite");
    await_epoch("stopped", job);
    if (const pid_t told = launcher ? job : rank_of(job, 1); told > 0) ::kill(told, SIGTERM);
    const int code = wait(job);
    if (code == 0) continue;  // the training ended before the signal came
    ASSERT_EQ(code, 75) << log();
    EXPECT_MENTIONS(log(), "resume it with --resume --run runs/stopped");
    EXPECT_EQ(log().find("error"), std::string::npos) << log();
    const char* const ways[] = {"--devices 2", "--devices 1", "--devices 3", "--devices 2 --strategy dp",
                                "--devices 1 --strategy single"};
    for (const std::string way : ways) {
      if (!launcher && way != ways[0]) break;
      fs::remove_all(run_folder("on"));
      fs::copy(run_folder("stopped"), run_folder("on"), fs::copy_options::recursive | fs::copy_options::copy_symlinks);
      ASSERT_EQ(run("ringtape train --run on --resume " + way), 0) << way << ": " << log();
      EXPECT_MENTIONS(log(), "resume runs/on/checkpoints/step-");
      if (way == ways[0]) {
        EXPECT_TRUE(bytes("on") == bytes("pair")) << way;
        const std::vector<double> found = training_losses("on"), expected = training_losses("pair");
        ASSERT_EQ(found.size(), expected.size());
        for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-9) << "epoch " << i + 1;
      }
      EXPECT_LE(difference("on", "alone"), 1e-6) << way;
    }
  }
}

TEST_F(DdpTest, ABatchOfEachRankIsAnotherBatchOnOtherRanks) {
  ASSERT_EQ(run("ringtape " + kTraining + " --epochs 1 --batch-size-per-rank 10 --devices 2 --run each"), 0) << log();
  EXPECT_EQ(run("ringtape train --run each --resume --devices 3"), 2);
  EXPECT_MENTIONS(
      log(),
      "--batch-size-per-rank 10: runs/each was trained with 20 images per step on 2 ranks; 3 ranks would have 30");
  ASSERT_EQ(run("ringtape train --run each --resume --devices 2"), 0) << log();
}

TEST_F(DdpTest, WithSyncBnOneImageOnEachRankIsEnoughForLossesOfSingleImages) {
  const std::string training =
      "ringtape pretrain --method simsiam --model resnet18 --width 1 --data shapes --train-size 12 --test-size 10 "
      "--knn-k 5 --projection-hidden 16 --projection-dim 8 --prediction-hidden 8 --epochs 1 --warmup-epochs 0 "
      "--lr 0.001 --threads 1 --device cpu --batch-size 2 --limit-train-batches 2 --run ";
  ASSERT_EQ(run(training + "alone"), 0) << log();
  ASSERT_EQ(run(training + "pair --devices 2 --sync-bn"), 0) << log();
  ASSERT_EQ(training_losses("pair").size(), 1u);
  EXPECT_NEAR(training_losses("pair")[0], training_losses("alone")[0], 1e-4);
}

// Ranks of other launchers train the same as those of --devices.
class LaunchersTest : public DdpTest {
 protected:
  void expect_same(const std::string& launcher) {
    ASSERT_EQ(run("ringtape " + kTraining + " --epochs 1 --devices 2 --run own"), 0) << log();
    ASSERT_EQ(run(launcher + " ringtape " + kTraining + " --epochs 1 --run other"), 0) << log();
    EXPECT_TRUE(bytes("other") == bytes("own"));
  }
};

TEST_F(LaunchersTest, Launch) { expect_same("ringtape launch -n 2 --exec --"); }

TEST_F(LaunchersTest, Mpirun) {
  if (run("mpirun --version") != 0) GTEST_SKIP() << "there is no mpirun (apt-get install openmpi-bin)";
  expect_same("mpirun -n 2 --allow-run-as-root --oversubscribe");
}

// RINGTAPE_TORCHRUN: path of torchrun.
TEST_F(LaunchersTest, Torchrun) {
  const char* const given = std::getenv("RINGTAPE_TORCHRUN");
  const std::string torchrun = given ? given : "torchrun";
  if (run(torchrun + " --help") != 0) GTEST_SKIP() << "there is no torchrun (pip install torch)";
  expect_same(torchrun + " --standalone --nproc-per-node 2 --no-python --");
}

// Ranks that are started one by one, as by other launchers.
class HostileTest : public DdpTest {
 protected:
  struct Rank {
    std::string flags;      // in addition to the flags of all ranks
    std::string variables;  // NAME=value, which replace the variables of its rank
    std::string before;     // shell commands, each with "; "
  };
  struct Job {
    int number;
    std::vector<pid_t> pids;
  };
  // `all`: the flags of all ranks.
  Job start_ranks(const std::string& all, const std::vector<Rank>& ranks) {
    Job out{++jobs_, {}};
    for (size_t r = 0; r < ranks.size(); ++r)
      out.pids.push_back(start(concat(ranks[r].before, "env RANK=", r, " WORLD_SIZE=", ranks.size(),
                                      " MASTER_ADDR=127.0.0.1 MASTER_PORT=", out.number, " ", ranks[r].variables,
                                      " ringtape ", all, " --run h", out.number, " ", ranks[r].flags),
                               log_of(out, r)));
    return out;
  }
  static std::string log_of(const Job& job, size_t rank) { return concat("log.", job.number, ".", rank); }
  std::string said(const Job& job, size_t rank) const { return log(log_of(job, rank)); }

  // All ranks that the test has not killed must end by themselves, with one line of error that mentions `cause`.
  void await_end(const Job& job, const std::string& cause) {
    for (size_t r = 0; r < job.pids.size(); ++r) {
      int status = 0;
      if (!within(60, [&] { return ::waitpid(job.pids[r], &status, WNOHANG) == job.pids[r]; })) {
        ADD_FAILURE() << "rank " << r << " does not end: " << cause;
        ::kill(job.pids[r], SIGKILL);
        ::waitpid(job.pids[r], &status, 0);
      }
      if (WIFSIGNALED(status)) continue;
      EXPECT_TRUE(WEXITSTATUS(status) >= 1 && WEXITSTATUS(status) <= 3)
          << cause << ", rank " << r << ": " << WEXITSTATUS(status);
      const std::string text = said(job, r), kError = "ringtape: error: ";
      const size_t at = text.find(kError);
      ASSERT_NE(at, std::string::npos) << cause << ", rank " << r << ": " << text;
      EXPECT_EQ(text.find(kError, at + 1), std::string::npos) << text;
      EXPECT_MENTIONS(text.substr(at), cause);
    }
  }

  int jobs_ = 0;
};

TEST_F(HostileTest, WhatAllMustHaveInCommon) {
  const std::pair<const char*, const char*> cases[] = {
      {"--seed 2", "rank 1 has 'seed = 2', rank 0 has 'seed = 1'"},
      {"--lr 0.5", "rank 1 has 'lr = 0.5'"},
      {"--hidden 17", "rank 1 has 'hidden = 17'"},
      {"--train-size 1400", "the data differ: rank 1 has '1400 training and 50 test images'"},
      {"--normalize imagenet", "the data differ: rank 1 has 'mean [0.485"},
      {"--batch-size 10", "rank 1 has 'batch-size = 10'"},
      {"--epochs 4", "rank 1 has 'epochs = 4', rank 0 has 'epochs = 5'"},
      {"--checkpoint-steps 2", "rank 1 has 'checkpoint-steps = 2'"},
      {"--limit-eval-batches 1", "rank 1 has 'limit-eval-batches = 1'"},
      {"--config other.toml", "rank 1 has 'clip-grad-norm = 3', rank 0 has 'clip-grad-norm = 0'"},
      {"--transport tcp", "choose the same on all ranks"},
      {"--strategy single", "--strategy single: uses one process, but a launcher has started 2"},
      {"--strategy dp", "--strategy dp: uses one process, but a launcher has started 2 ranks"},
      {"--devices 3", "--devices 3: a launcher has started 2 ranks here"},
      {"--weights /nowhere.safetensors", "/nowhere.safetensors: cannot open"},
  };
  write_file((folder_ / "other.toml").string(), "clip-grad-norm = 3\n");
  std::vector<Job> jobs;
  for (const auto& [flags, cause] : cases) jobs.push_back(start_ranks(kTraining, {{}, {flags, "", ""}}));
  for (size_t i = 0; i < jobs.size(); ++i) await_end(jobs[i], cases[i].second);
}

TEST_F(HostileTest, WhoEndsTellsTheOthers) {
  const Job data = start_ranks(kTraining, {{}, {}, {"--weights /nowhere.safetensors", "", ""}});
  const Job nan = start_ranks(kTraining + " --lr 1e30", {{}, {}, {}});
  const Job disk = start_ranks(kTraining + " --transport tcp --hidden 300 --snapshots 0",
                               {{"", "", "trap '' XFSZ; ulimit -f 100; "}, {}});
  await_end(data, "/nowhere.safetensors: cannot open");
  EXPECT_MENTIONS(said(data, 0), "rank 2 on ");
  EXPECT_EQ(said(data, 2).find("rank 2 on "), std::string::npos) << said(data, 2);
  await_end(nan, "the train loss became nan by step 3 (epoch 1");
  await_end(disk, "model.safetensors: cannot write: File too large");
  EXPECT_MENTIONS(said(disk, 1), "rank 0 on ");
}

// A rank finds errors in its flags before it looks for the others, and tells them.
TEST_F(HostileTest, WhoIsStartedWronglyTellsTheOthers) {
  const Job unknown = start_ranks(kTraining, {{}, {"--sed 2", "", ""}, {}});
  const Job first = start_ranks(kTraining, {{"--epochs x", "", ""}, {}});
  const Job all = start_ranks(kTraining + " --batch-size 0", {{}, {}});
  await_end(unknown, "unknown flag --sed; did you mean --seed?");
  EXPECT_MENTIONS(said(unknown, 0), "rank 1 on ");
  EXPECT_LACKS(said(unknown, 1), "rank 1 on ");
  await_end(first, "--epochs: expected a whole number");
  EXPECT_MENTIONS(said(first, 1), "rank 0 on ");
  await_end(all, "--batch-size: expected a whole number");
}

TEST_F(HostileTest, ARankWithoutMemory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers take more address space than the limit";
#endif
  const Job job = start_ranks(kTraining + " --transport tcp --hidden 8000", {{}, {"", "", "ulimit -v 300000; "}});
  await_end(job, "out of memory on the cpu: asked for ");
  EXPECT_MENTIONS(said(job, 0), "rank 1 on ");
}

TEST_F(HostileTest, APlaceThatIsNotThere) {
  const std::string soon = kTraining + " --comm-timeout 6";  // all start within it on a busy machine
  const Rank of_three{"", "WORLD_SIZE=3", ""};
  const Job sizes = start_ranks(kTraining, {{}, of_three}), missing = start_ranks(soon, {of_three, of_three}),
            twice = start_ranks(kTraining, {{}, {}, {"", "RANK=1", ""}}),
            first_twice = start_ranks(soon, {{}, {}, {"", "RANK=0", ""}});
  await_end(sizes, "start all with the same number");
  await_end(missing, "rank 2 of 3 did not join within 6 s");
  await_end(twice, "rank 1 was started twice");
  await_end(first_twice, "did not join within 6 s");
}

TEST_F(HostileTest, ARankThatStandsStillIsNamedAtTheDeadline) {
  const Job job = start_ranks(kEndless + " --comm-timeout 4", {{}, {}, {}});
  EXPECT_TRUE(within(30, [&] { return said(job, 0).find("epoch 2/") != std::string::npos; })) << said(job, 0);
  ::kill(job.pids[1], SIGSTOP);
  EXPECT_TRUE(within(20, [&] { return ended(job.pids[0]) && ended(job.pids[2]); }));
  ::kill(job.pids[1], SIGKILL);
  await_end(job, "waited 4 s for rank 1 in ");
  EXPECT_MENTIONS(said(job, 2), "no answer within 1 s");
}

TEST_F(HostileTest, ADeadRankIsNamedByAll) {
  const Job job = start_ranks(kEndless, {{}, {}, {}});
  EXPECT_TRUE(within(30, [&] { return said(job, 0).find("epoch 2/") != std::string::npos; })) << said(job, 0);
  ::kill(job.pids[2], SIGKILL);
  await_end(job, concat("rank 2 (pid ", job.pids[2]));
}

// One line, before anything starts.
TEST_F(HostileTest, WhatIsWrongForAllIsSaidOnce) {
  const std::pair<const char*, const char*> cases[] = {
      {"--devices 0", "expected a whole number of at least 1"},
      {"--devices abc", "got 'abc'"},
      {"--devices 3 --batch-size 2", "--batch-size 2: fewer images than the 3 ranks"},
      {"--devices 2 --transport pigeon", "unknown value 'pigeon'"},
      {"--devices 2 --strategy single", "--strategy single: uses one device, not --devices 2"},
      {"--devices 2 --resume", "--resume: needs --run"},
      {"--device auto --gpu-ids 0,1", "--gpu-ids 0,1: one rank uses only one GPU; add --devices 2"},
      {"--devices 2 --run busy --overwrite", "another process is training there"},
      {"--devices 2 --run busy --resume", "another process is training there"},
  };
  const pid_t busy = start("ringtape " + kEndless + " --devices 2 --run busy", "busy");
  EXPECT_TRUE(within(30, [&] { return log("busy").find("epoch 1/") != std::string::npos; })) << log("busy");
  for (const auto& [flags, cause] : cases) {
    const bool resumes = std::string(flags).find("--resume") != std::string::npos;
    EXPECT_EQ(run(concat("ringtape ", resumes ? "train" : kTraining, " ", flags)), 2) << flags;
    EXPECT_MENTIONS(log(), cause);
    const std::string said = log();
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  }
  ::kill(busy, SIGTERM);
  EXPECT_EQ(wait(busy), 75);
}

// A launcher names the rank that failed, whatever the others do, and returns its exit code.
TEST_F(HostileTest, ALauncherNamesTheRankThatFailed) {
  const std::string bad =
      " if [ $RANK = 2 ]; then X=\"--weights /nowhere.safetensors\"; fi; exec " RINGTAPE_BINARY " " + kTraining + " $X";
  write_file((folder_ / "job.sh").string(), bad);
  EXPECT_EQ(run("ringtape launch -n 3 --exec -- sh job.sh"), 1);
  EXPECT_MENTIONS(log(), "rank 2 of 3 was the first to fail: exit code 1");
  EXPECT_MENTIONS(log(), "[2] ringtape: error: /nowhere.safetensors: cannot open");
}

}  // namespace
}  // namespace ringtape
