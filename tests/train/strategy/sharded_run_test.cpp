// Trainings whose ranks share the optimizer's state, as users run them: files, resuming, killed and failing ranks.
#include <algorithm>

#include "tests/support/comm_worlds.h"
#include "tests/support/jobs.h"
#include "tests/support/settings.h"
#include "train/settings/run_setup.h"

namespace ringtape {
namespace {

using namespace test;

// kTraining with Adam, which has two numbers of state for each weight.
const std::string kWithAdam = [] {
  std::string text = kTraining;
  const std::string sgd = "--optimizer sgd --lr 0.002 --momentum 0.5";
  return text.replace(text.find(sgd), sgd.size(), "--optimizer adam --lr 0.002");
}();

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kShort = true;  // each run takes ten times as long
#else
constexpr bool kShort = false;
#endif

class ShardedRunTest : public JobTest {
 protected:
  static std::vector<std::string> checkpoints(const fs::path& run) {
    std::vector<std::string> out;
    for (const auto& entry : fs::directory_iterator(run / "checkpoints"))
      if (!entry.is_symlink()) out.push_back(entry.path().filename().string());
    std::ranges::sort(out);
    return out;
  }
  void expect_same_files(const std::string& run, const std::string& other) const {
    const std::vector<std::string> files = weights(run_folder(run));
    ASSERT_GE(files.size(), 3u);  // of the export, and of a checkpoint
    ASSERT_EQ(files, weights(run_folder(other)));
    for (const std::string& file : files)
      EXPECT_TRUE(read_file((run_folder(run) / file).string()) == read_file((run_folder(other) / file).string()))
          << run << ": " << file;
  }
  static std::vector<std::string> weights(const fs::path& run) {
    std::vector<std::string> out;
    for (const char* folder : {"checkpoints", "exported"})
      for (const auto& entry : fs::recursive_directory_iterator(run / folder))
        if (entry.path().extension() == ".safetensors") out.push_back(fs::relative(entry.path(), run).string());
    std::ranges::sort(out);
    return out;
  }
};

TEST_F(ShardedRunTest, LeavesTheFilesOfDdp) {
  for (const std::string transport : {"shm", "tcp"}) {
    if (kShort && transport == "tcp") continue;
    const std::string training = kWithAdam +
                                 " --epochs 2 --clip-grad-norm 1 --dropout 0.2 --export best "
                                 "--checkpoint-steps 20 --keep 9 --deterministic --devices 3 --overwrite --transport " +
                                 transport;
    ASSERT_EQ(run(concat("ringtape ", training, " --strategy ddp --run ddp")), 0) << log();
    for (const std::string strategy : {"zero1", "zero2 --share-weights", "zero2", "hsdp --shard-within 1", "fsdp"}) {
      if (transport == "tcp" && strategy.ends_with("share-weights")) continue;
      ASSERT_EQ(run(concat("ringtape ", training, " --run x --strategy ", strategy)), 0) << log();
      expect_same_files("x", "ddp");
    }
    EXPECT_MENTIONS(log(), "shards 3 of the optimizer's state, the gradients and the weights");
  }
}

// With fsdp, teachers are in shards; queues are whole on every rank.
const std::string kPretraining =
    "ringtape pretrain --data shapes --train-size 96 --test-size 20 --model resnet18 --width 8 --batch-size 32 "
    "--knn-k 5 --workers 0 --device cpu --threads 1 ";

TEST_F(ShardedRunTest, TrainsMethodsAsDdpDoes) {
  for (const std::string method : {"byol", "moco --queue 160 --ema 0.9", "swav --prototypes 3000"}) {
    for (const char* strategy : {"ddp", "zero2", "fsdp", "zero1 --share-weights"})
      ASSERT_EQ(run(concat(kPretraining, "--epochs 1 --devices 2 --overwrite --method ", method, " --strategy ",
                           strategy, " --run ", strategy)),
                0)
          << log();
    for (const char* strategy : {"zero1", "zero2", "fsdp"}) expect_same_files(strategy, "ddp");
  }
}

// A checkpoint of any strategy is read into shards of a teacher, and theirs by any other.
// They used to wait for each other for ever, once the ranks' parts of the training images had been of 2 and 1 batches.
TEST_F(ShardedRunTest, ARankWithoutTestImagesHelpsTheOthers) {
  const std::string few = "--train-size 1001 --test-size 1 --width 2 --batch-size 500 --epochs 1 --devices 2 ";
  for (const char* strategy : {"ddp", "fsdp"})
    ASSERT_EQ(run(concat(kPretraining, few, "--method simclr --strategy ", strategy, " --run ", strategy)), 0)
        << strategy << ": " << log();
  const auto backbone = [&](const char* run) {
    return read_file((run_folder(run) / "exported/backbone.safetensors").string());
  };
  EXPECT_TRUE(backbone("fsdp") == backbone("ddp"));
}

TEST_F(ShardedRunTest, ResumesTeachersWithAnyStrategy) {
  for (const std::string method : {"byol", "moco --queue 160"}) {
    for (const std::string middle : {"ddp", "fsdp"}) {
      const auto train = [&](int epochs, const std::string& with) {
        return run(concat(kPretraining, "--keep 9 --epochs ", epochs, " --method ", method, " --resume --run ", middle,
                          " --strategy ", with));
      };
      int epochs = 0;
      for (const std::string& with :
           {std::string("single --devices 1"), middle + " --devices 2", std::string("single --devices 1")})
        ASSERT_EQ(train(++epochs, with), 0) << with << ": " << log();
    }
    expect_same_files("fsdp", "ddp");
    fs::remove_all(folder_ / "runs");
  }
}

// RINGTAPE_LADDER: from every strategy to every other.
TEST_F(ShardedRunTest, ResumesWithAnyStrategyAndNumberOfRanks) {
  const std::vector<std::string> all = {"single --devices 1",
                                        "dp --devices 2",
                                        "ddp --devices 2",
                                        "zero1 --devices 2",
                                        "zero1 --devices 3",
                                        "zero2 --devices 2",
                                        "fsdp --devices 4",
                                        "fsdp --devices 2",
                                        "hsdp --devices 4 --shard-within 2",
                                        "zero1 --devices 2 --share-weights"};
  const bool full = std::getenv("RINGTAPE_LADDER");
  const std::string training = "ringtape " + kWithAdam + " --epochs 2 --keep 9 --checkpoint-steps 35 ";
  ASSERT_EQ(run(training + "--run alone"), 0) << log();
  for (size_t from = 0; from < all.size(); ++from) {
    if (!full && from != 0 && from != 2 && from != 6) continue;
    if (kShort && from != 6) continue;
    ASSERT_EQ(run(training + "--overwrite --run whole --strategy " + all[from]), 0) << log();
    for (size_t to = 0; to < all.size(); ++to) {
      if (!full && (from + to) % 2 == 1) continue;
      fs::remove_all(run_folder("on"));
      fs::copy(run_folder("whole"), run_folder("on"), fs::copy_options::recursive | fs::copy_options::copy_symlinks);
      const std::vector<std::string> steps = checkpoints(run_folder("on"));
      ASSERT_EQ(steps.size(), 4u);
      fs::remove_all(run_folder("on") / "checkpoints" / steps[3]);
      fs::remove_all(run_folder("on") / "checkpoints" / steps[2]);
      ASSERT_EQ(run("ringtape train --run on --resume --strategy " + all[to]), 0) << all[to] << ": " << log();
      EXPECT_MENTIONS(log(), "resume runs/on/checkpoints/" + steps[1]);
      EXPECT_LE(difference("on", "alone"), 1e-6) << all[from] << " to " << all[to];
      // Two ranks add up in one order, whoever has the optimizer's state.
      const auto pair = [&](size_t i) { return i == 2 || i == 3 || i == 5 || i == 7 || i == 9; };
      if (pair(from) && pair(to)) expect_same_files("on", "whole");
    }
  }
}

TEST_F(ShardedRunTest, AKilledRankCostsARestartAndNoBit) {
  for (const char* strategy : {"zero2 --share-weights", "fsdp"}) {
    fs::remove_all(folder_ / "runs");
    expect_kills_cost_no_bit(concat(kWithAdam, " --strategy ", strategy, " --dropout 0.2 --checkpoint-steps 10"),
                             kShort ? 1 : 2, 12);
  }
}

TEST_F(ShardedRunTest, ARankWithAnotherStrategyIsNamed) {
  const std::string own = "test $LOCAL_RANK = 1 && s=zero1 || s=ddp && ringtape " + kTraining + " --run x ";
  EXPECT_EQ(run("ringtape launch -n 2 -- /bin/sh -c '" + own + "--strategy $s'"), 1);
  EXPECT_MENTIONS(log(), R"(the settings differ: rank 1 has 'strategy = "zero1"', rank 0 has 'strategy = "ddp"')");
}

// Rank 0 fails while the others serve what it writes.
TEST(ShardedFaults, AllRanksEndWithTheCauseOfAFailedSave) {
  for (const char* strategy : {"zero1", "zero2", "fsdp"}) {
    TrainOptions o;
    set(o, {{"train-size", "220"}, {"test-size", "20"}, {"hidden", "8"}, {"strategy", strategy}});
    o.data.val_size = 20, o.trainer.batch_size = 20, o.checkpoint.steps = 4;
    o.execution.workers = 0, o.execution.threads = 1, o.execution.device = "cpu";
    const std::string cause = comm::test::on_group(comm::test::kWorlds[0], 3, [&](comm::ProcessGroup& group) {
      RunSetup task(resolve(o, 3));
      Trainer trainer = make_trainer(task, group);
      trainer.share_state();
      int saves = 0;
      trainer.fit([](const Metrics&) {},
                  [&] {
                    for (const TensorFile& file : trainer.files())
                      for (const FileTensor& tensor : file.tensors) {
                        (void)tensor.get({0, tensor.rows()});
                        if (saves == 1 && tensor.name == "v.1.weight") throw IoError("No space left on device");
                      }
                    ++saves;
                  });
    });
    EXPECT_EQ(cause, "No space left on device") << strategy;
  }
}

}  // namespace
}  // namespace ringtape
