#include "tests/support/image_folders.h"
#include "train/io/safetensors.h"

namespace ringtape {
namespace {

class AveragedModelTest : public test::ImageFolders {
 protected:
  // On little data, with batches of 16, so that running statistics move fast.
  void train(const std::string& flags) {
    ASSERT_EQ(run("train --data shapes --train-size 400 --test-size 100 --model resnet18 --width 4 --batch-size 16 "
                  "--optimizer sgd --lr 0.1 --threads 1 --overwrite " +
                  flags),
              0)
        << file("err");
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  double loss(const std::string& what) { return result_of("evaluate " + what)["loss"].get<double>(); }
};

// On one processor a loss of 1.51; 1.81 with the statistics of the training.
TEST_F(AveragedModelTest, HasRunningStatisticsOfItsOwn) {
  train("--epochs 4 --ema 0.95 --run whole");
  EXPECT_EQ(file("err"), "");
  const double tested = loss("runs/whole");
  EXPECT_EQ(loss("runs/whole/checkpoints/last"), tested) << "of a checkpoint";
  Safetensors mixed = read_safetensors(path("runs/whole/exported/model.safetensors"));
  const Safetensors last = read_safetensors(path("runs/whole/checkpoints/last/model.safetensors"));
  for (NamedTensor& t : mixed.tensors)
    if (t.name.find("running_") != std::string::npos) t.tensor = last[t.name];
  write_safetensors(path("mixed.safetensors"), mixed.tensors, mixed.metadata);
  EXPECT_LT(tested, loss("mixed.safetensors") - 0.1);
  const std::string exported = file("runs/whole/exported/model.safetensors");
  EXPECT_EQ(file("runs/whole/checkpoints/last/ema.safetensors"), exported);

  // The training itself goes on with its own; a resumed one ends as if nothing had happened.
  train("--epochs 4 --run raw");
  EXPECT_EQ(file("runs/raw/checkpoints/last/model.safetensors"), file("runs/whole/checkpoints/last/model.safetensors"));
  train("--epochs 4 --ema 0.95 --run parts --max-steps 30 --checkpoint-steps 7");
  ASSERT_EQ(run("train --run parts --resume --max-steps 0"), 0) << file("err");
  EXPECT_EQ(file("runs/parts/exported/model.safetensors"), exported);
}

TEST_F(AveragedModelTest, IsTheSameOnAllRanks) {
  train("--epochs 1 --ema 0.9 --run ddp --devices 2 --strategy ddp --sync-bn");
  for (const std::string strategy : {"zero1", "zero2 --share-weights", "fsdp"}) {
    train("--epochs 1 --ema 0.9 --run other --devices 2 --sync-bn --strategy " + strategy);
    EXPECT_EQ(file("runs/other/exported/model.safetensors"), file("runs/ddp/exported/model.safetensors")) << strategy;
  }
}

TEST_F(AveragedModelTest, ThatIsStillWhatItBeganWithIsNotedOnce) {
  train("--epochs 1 --ema 0.999 --run short --max-steps 23");
  EXPECT_MENTIONS(file("err"),
                  "--ema 0.999: after 23 steps 98 % of the average are still the weights at the start; "
                  "with --ema 0.88 it is 5 %");
  ASSERT_EQ(run("train --run short --resume --max-steps 0 --epochs 2"), 0);
  EXPECT_EQ(file("err"), "");
}

// By --weights-key, of a run and of a checkpoint.
TEST_F(AveragedModelTest, IsChosenOrTheWeightsOfTheTraining) {
  train("--epochs 1 --ema 0.9 --run whole");
  train("--epochs 1 --run raw");
  for (const std::string what : {"runs/whole", "runs/whole/checkpoints/last"})
    for (const auto& [key, from] : {std::pair{"model", "raw"}, {"ema", "whole"}}) {
      ASSERT_EQ(run(concat("export ", what, " --out x.safetensors --weights-key ", key)), 0) << file("err");
      EXPECT_EQ(file("x.safetensors"), file(concat("runs/", from, "/exported/model.safetensors"))) << what << key;
    }
  EXPECT_EQ(loss("runs/whole --weights-key model"), loss("runs/raw"));
  EXPECT_MENTIONS(refused("evaluate raw --weights-key ema"), "checkpoints/last/ema.safetensors; only trainings with");
  EXPECT_MENTIONS(refused("evaluate whole --weights-key raw"), "last has `model`, and with --ema also `ema`");
}

}  // namespace
}  // namespace ringtape
