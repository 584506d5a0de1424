#include "nn/nn.h"

#include <cmath>

#include "autograd/create.h"
#include "tests/support/support.h"

namespace ringtape::nn {
namespace {

using test::values;

std::unique_ptr<Sequential> mlp() {
  auto model = std::make_unique<Sequential>();
  model->add<Flatten>().add<Linear>(784, 128).add<ReLU>().add<Dropout>(0.5).add<Linear>(128, 10);
  return model;
}

TEST(Module, NamesParametersByTheirPath) {
  Sequential outer;
  outer.add(mlp()).add<Linear>(10, 2, false);
  std::vector<std::string> names;
  for (const Named& p : named_parameters(outer)) names.push_back(p.name);
  EXPECT_EQ(names, (std::vector<std::string>{"0.1.weight", "0.1.bias", "0.4.weight", "0.4.bias", "1.weight"}));
  EXPECT_EQ(count_parameters(outer), 101770 + 20);
}

// conv2d infers groups from the shapes; the layer knows how many it has.
TEST(Conv2d, TakesOnlyTheChannelsItWasMadeFor) {
  Conv2d grey(1, 6, 3), grouped(4, 6, 3, {.groups = 2});
  EXPECT_EQ(grey(ones({2, 5, 5, 1})).shape(), Shape({2, 3, 3, 6}));
  EXPECT_EQ(grouped(ones({2, 5, 5, 4})).shape(), Shape({2, 3, 3, 6}));
  EXPECT_EQ(test::message_of<ShapeError>([&] {
              grey(ones({2, 5, 5, 3}));
            }),
            "Conv2d: expected images (N, H, W, 1), got (2, 5, 5, 3); made with 1 input channels and 1 group");
  EXPECT_EQ(test::message_of<ShapeError>([&] {
              grouped(ones({2, 5, 5, 2}));
            }),
            "Conv2d: expected images (N, H, W, 4), got (2, 5, 5, 2); made with 4 input channels and 2 groups");
  EXPECT_NE(test::message_of<ShapeError>([&] {
              grey(ones({5, 5, 1}));
            }).find("conv2d: expected x (N, H, W, C)"),
            std::string::npos);
}

TEST(Module, TrainReachesEveryChild) {
  Sequential outer;
  outer.add(mlp());
  outer.train(false);
  const Tensor x = ones({2, 784});
  EXPECT_TRUE(test::same_bytes(outer(x), outer(x)));  // no dropout
  outer.train();
  EXPECT_FALSE(test::same_bytes(outer(x), outer(x)));
}

TEST(Module, MovesAndConverts) {
  Linear layer(3, 2);
  const std::vector<double> before = values(layer.weight);
  move_to(layer, Device{DeviceType::cpu, 1});
  EXPECT_EQ(layer.weight.device().index, 1);
  EXPECT_TRUE(requires_grad(layer.weight));
  cast_to(layer, DType::f64);
  EXPECT_EQ(layer.bias.dtype(), DType::f64);
  EXPECT_EQ(values(layer.weight), before);
}

TEST(Module, WhatIsTiedStaysTied) {
  struct Tied : Module {
    Tensor in = leaf(randn({5, 3})), out = in;
    Tensor forward(const Tensor& x) override { return linear(embedding(x, in), out); }
    void visit(Visitor& v) override { v.parameter("in", in), v.parameter("out", out); }
    std::string str() const override { return "Tied"; }
  } model;
  move_to(model, Device{});
  EXPECT_EQ(model.in.node(), model.out.node());
  cast_to(model, DType::f64);
  EXPECT_EQ(model.in.node(), model.out.node());
  EXPECT_EQ(model.in.dtype(), DType::f64);
}

TEST(Module, SummaryListsShapesAndCounts) {
  const std::string text = summary(*mlp(), {1, 28, 28, 1});
  EXPECT_NE(text.find("1     Linear(784 -> 128)  (1, 128)  100,480"), std::string::npos) << text;
  EXPECT_NE(text.find("101,770 parameters, 407,080 bytes"), std::string::npos) << text;
}

TEST(Linear, StartsAsPyTorchsDoes) {
  manual_seed(4);
  const Linear layer(784, 4000);
  const double bound = 1 / 28.0;
  const std::vector<double> w = values(layer.weight), b = values(layer.bias);
  for (double v : w) ASSERT_LE(std::fabs(v), bound + 1e-8);
  for (double v : b) ASSERT_LE(std::fabs(v), bound + 1e-8);
  EXPECT_NEAR(var(layer.weight.detach()).item(), bound * bound / 3, 0.01 * bound * bound);
  EXPECT_NEAR(mean(layer.weight.detach()).item(), 0, 1e-4);
}

TEST(Init, OfWeightsThatAreReadDrawsNothing) {
  manual_seed(3);
  const Tensor first = rand({4});
  manual_seed(3);
  {
    const NoInit outer;
    { const NoInit inner; }
    for (const Init init : {Init::uniform_fan_in, Init::normal_fan_out, Init::dirac})
      EXPECT_EQ(Conv2d(3, 4, 3, without_bias(1, 1, init)).weight.shape(), (Shape{4, 3, 3, 3}));
    EXPECT_EQ(Linear(3, 2).weight.shape(), (Shape{2, 3}));
  }
  EXPECT_TRUE(test::same_bytes(rand({4}), first));
  manual_seed(3);
  const Linear drawn(2, 2);
  EXPECT_FALSE(test::same_bytes(rand({4}), first));
}

TEST(Dropout, KeepsTheExpectationAndIsOffInEvaluation) {
  Dropout layer(0.25);
  const Tensor x = ones({100000});
  EXPECT_NEAR(mean(layer(x)).item(), 1, 0.02);
  layer.train(false);
  EXPECT_TRUE(test::same_bytes(layer(x), x));
  EXPECT_NE(test::message_of<UsageError>([] { Dropout(1.5); }).find("1.5"), std::string::npos);
}

// As torch.optim.swa_utils.update_bn: the mean over batches of each batch's mean and unbiased variance.
TEST(BatchNorm, StatisticsOfBatchesAreTheirMean) {
  manual_seed(1);
  Sequential model;
  model.add<BatchNorm>(2).add<Dropout>(0.5);
  split_batch_norm(model, 3);
  const Tensor x = randn({3, 8, 2});
  for (int i = 0; i < 5; ++i) (void)model(x);
  const uint64_t drawn = default_generator().state().counter;
  {
    const NoGrad no_grad;
    BatchStatistics statistics(model);
    for (int i = 0; i < 3; ++i) {
      statistics.begin_batch();
      (void)model(reshape(slice(x, 0, i, i + 1), {8, 2}));
    }
  }
  EXPECT_EQ(default_generator().state().counter, drawn) << "Dropout evaluates";
  EXPECT_TRUE(model.training());
  const RunningStatistics& running = dynamic_cast<const BatchNorm&>(model[0]).running();
  test::expect_close(running.mean, mean(x, {0, 1}), 1e-6, 1e-6, "mean");
  const Tensor from_mean = x - mean(x, {1}, true);
  test::expect_close(running.var, sum(from_mean * from_mean, {0, 1}) / (3 * 7.0), 1e-6, 1e-6, "variance");
}

}  // namespace
}  // namespace ringtape::nn
