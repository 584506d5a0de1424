// configs/cifar10_94.toml on a few images, as users run it: what its network begins with, bits, strategies, files.
#include "tests/support/jobs.h"

namespace ringtape {
namespace {

using namespace test;

const std::string kSmall =
    " --data shapes --train-size 92 --test-size 40 --val-size 20 --width 4 --batch-size 24 --workers 0 --threads 1 "
    "--device cpu ";

class CifarNetRun : public JobTest {
 protected:
  std::string recipe(const std::string& more) const {
    return concat("ringtape train --config " RINGTAPE_SOURCE_DIR "/configs/cifar10_94.toml", kSmall, "--epochs 3 ",
                  more, " ");
  }
  void train(const std::string& more) { ASSERT_EQ(run(recipe(more)), 0) << log(); }
  std::vector<double> weight(const std::string& run, const std::string& name) const {
    return values(read_safetensors((run_folder(run) / "exported/model.safetensors").string())[name]);
  }
};

TEST_F(CifarNetRun, RanksAndStrategiesMakeTheSameNetwork) {
  train("--deterministic --shares 6 --run one");
  for (const char* more : {"--devices 2", "--devices 3", "--threads 2"}) {
    train(concat("--deterministic --shares 6 --run more --overwrite ", more));
    EXPECT_TRUE(bytes("more") == bytes("one")) << more;
  }
  train("--devices 2 --deterministic --sync-bn --run ddp");
  for (const char* strategy : {"zero1", "zero2", "fsdp"}) {
    train(concat("--devices 2 --deterministic --sync-bn --run sharded --overwrite --strategy ", strategy));
    EXPECT_TRUE(bytes("sharded") == bytes("ddp")) << strategy;
  }
  train("--devices 2 --sync-bn --strategy dp --run dp");
  EXPECT_LT(difference("dp", "ddp"), 1e-3);
}

TEST_F(CifarNetRun, GoesOnFromTheMiddleWithTheSameBits) {
  train("--bias-epochs 1 --run whole");
  for (const char* steps : {"3", "9"}) {
    train(concat("--bias-epochs 1 --run parts --overwrite --max-steps ", steps));
    ASSERT_EQ(run("ringtape train --run parts --resume --max-steps 0"), 0) << log();
    EXPECT_TRUE(bytes("parts") == bytes("whole")) << "after " << steps;
  }
}

// The first layer is the whitening of the images that train: not of those that validate, nor random.
TEST_F(CifarNetRun, TheFirstLayerWhitensTheTrainingImages) {
  train("--seed 1 --run a");
  train("--seed 1 --lr 0.1 --bias-lr 0.1 --run b");
  train("--seed 2 --run c");
  EXPECT_EQ(weight("a", "whiten.weight"), weight("b", "whiten.weight"));
  EXPECT_NE(weight("a", "whiten.weight"), weight("c", "whiten.weight"));
  EXPECT_NE(weight("a", "whiten.bias"), weight("b", "whiten.bias"));
  double apart = 0, all = 0;  // other 72 images of the same kind
  for (size_t i = 0; i < 12; ++i) {
    const double x = std::fabs(weight("a", "whiten.weight")[i]), y = std::fabs(weight("c", "whiten.weight")[i]);
    apart += (x - y) * (x - y), all += x * x;
  }
  EXPECT_LT(apart, 0.01 * all);
  train("--seed 2 --weights runs/a/exported/model.safetensors --run d");
  EXPECT_EQ(weight("d", "whiten.weight"), weight("a", "whiten.weight"));
}

TEST_F(CifarNetRun, IsABackboneOfMethods) {
  ASSERT_EQ(run("ringtape pretrain --method byol --model cifar_net --epochs 1 --warmup-epochs 0 --knn-k 5 "
                "--projection-hidden 16 --projection-dim 8 --prediction-hidden 8 --run byol --data shapes "
                "--train-size 60 --test-size 20 --width 4 --batch-size 20 --workers 0 --threads 1 --device cpu"),
            0)
      << log();
  const Safetensors file = read_safetensors((run_folder("byol") / "exported/backbone.safetensors").string());
  const std::vector<double> w = values(file["whiten.weight"]);
  for (size_t i = 0; i < 144; ++i) EXPECT_EQ(w[i], -w[144 + i]);
}

TEST_F(CifarNetRun, TestsMayAverageOverCopies) {
  train("--seed 3 --run shifts");
  const auto tested = [this](const std::string& more) {
    EXPECT_EQ(run("ringtape evaluate shifts --json " + more), 0) << log();
    const std::string line = log();
    return line.substr(line.find("\"loss\""), 30);
  };
  const std::string shift = tested(""), none = tested("--test-copies none"), flip = tested("--test-copies flip");
  EXPECT_EQ(tested("--test-copies shift"), shift);
  EXPECT_NE(none, shift);
  EXPECT_NE(none, flip);
  EXPECT_NE(flip, shift);
  train("--seed 3 --test-copies none --run plain");
  EXPECT_TRUE(bytes("plain").size() == bytes("shifts").size());
  EXPECT_EQ(weight("plain", "head.weight"), weight("shifts", "head.weight")) << "validations are without";
}

}  // namespace
}  // namespace ringtape
