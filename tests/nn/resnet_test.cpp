// Residual networks beside PyTorch's, from the same weights and images: tests/fixtures/make_resnet.py.
#include "nn/resnet.h"

#include <cmath>
#include <set>
#include <thread>

#include "autograd/create.h"
#include "kernels/arithmetic.h"
#include "kernels/conv2d.h"
#include "nn/wide_resnet.h"
#include "tests/support/network_fixtures.h"
#include "train/data/loader.h"
#include "train/data/sets/shapes.h"
#include "train/evaluation/metrics.h"
#include "train/io/safetensors.h"
#include "train/optim/sgd.h"

namespace ringtape {
namespace {

using test::expect_names;
using test::expect_one_step;
using test::fixture;
using test::fixture_labels;
using test::fixture_noise;
using test::network;
using test::values;

// Without Winograd's transforms, while it lives.
struct Exactly : ArithmeticScope {
  Exactly() : ArithmeticScope(&Arithmetic::exact_convolutions, true) {}
};

void expect_one_step_of_resnet18(DType dtype, double tolerance) {
  const auto model = network<nn::ResNet>({}, 512, dtype);
  expect_one_step(model.get(), "resnet", cast(fixture_noise({2, 32, 32, 3}, 1100), dtype), tolerance);
}
TEST(ResNet, GradientsInDoubleArePyTorchs) { expect_one_step_of_resnet18(DType::f64, 1e-8); }
TEST(ResNet, GradientsInFloatArePyTorchs) {
  const Exactly exactly;
  expect_one_step_of_resnet18(DType::f32, 1e-4);
}

const nn::ResNet::Options kBottlenecks{
    .blocks = {2, 1, 1, 1}, .block = nn::Block::bottleneck, .stem = nn::Stem::imagenet, .width = 4};
TEST(Bottleneck, GradientsAreTorchvisions) {
  const auto model = network<nn::ResNet>(kBottlenecks, 128, DType::f64);
  expect_one_step(model.get(), "bottleneck", fixture_noise({4, 64, 64, 3}, 1200), 1e-8);
}
TEST(WideResNet, GradientsArePyTorchs) {
  const auto model = network<nn::WideResNet>({.depth = 10, .widen = 2}, 128, DType::f64);
  expect_one_step(model.get(), "wide_resnet", fixture_noise({2, 32, 32, 3}, 1300), 1e-8);
}

TEST(ResNet, CheckpointingKeepsLessAndHasTheSameBytes) {
  std::vector<Tensors> after;
  std::vector<int64_t> kept;
  for (const bool on : {false, true}) {
    manual_seed(1);
    nn::ResNet model({.width = 8, .checkpointing = on});
    const Tensor x = cast(fixture_noise({4, 32, 32, 3}, 1400), DType::f32);
    const int64_t before = memory_stats({}).current;
    const Tensor loss = sum(square(model(x)));
    kept.push_back(memory_stats({}).current - before);
    backward(loss);
    Tensors& all = after.emplace_back();
    for (const nn::Named& p : nn::named_parameters(model)) all.push_back(p.tensor->node()->grad);
    for (const nn::Named& b : nn::named_buffers(model)) all.push_back(*b.tensor);  // running statistics
  }
  EXPECT_LT(kept[1] * 2, kept[0]);
  ASSERT_GT(after[0].size(), 100u);
  for (size_t i = 0; i < after[0].size(); ++i) EXPECT_TRUE(test::same_bytes(after[0][i], after[1][i])) << i;
}

TEST(ResNet, NamesArePyTorchs) {
  nn::ResNet resnet18({}), bottlenecks(kBottlenecks);
  nn::WideResNet wide({.depth = 10, .widen = 2});
  expect_names(resnet18, "resnet");
  expect_names(bottlenecks, "bottleneck");
  expect_names(wide, "wide_resnet");
}

// kaiming_normal_(mode="fan_out"), and zeros in the last bias of WideResNet.
TEST(ResNet, StartsAsTheReferencesDo) {
  const auto deviation = [](nn::Module& model, const std::string& name) {
    for (const nn::Named& p : nn::named_parameters(model))
      if (p.name == name) return std::sqrt(var(p.tensor->detach()).item());
    return 0.0;
  };
  manual_seed(2);
  nn::ResNet resnet50({.blocks = {1, 1, 1, 1}, .block = nn::Block::bottleneck});
  EXPECT_NEAR(deviation(resnet50, "layer4.0.conv2.weight"), std::sqrt(2 / (9 * 512.0)), 1e-4);
  EXPECT_NEAR(deviation(resnet50, "layer4.0.downsample.0.weight"), std::sqrt(2 / 2048.0), 1e-4);
  nn::WideResNet wide({.depth = 10});
  EXPECT_NEAR(deviation(wide, "block3.layer.0.conv1.weight"), std::sqrt(2 / (9 * 640.0)), 1e-4);
  EXPECT_EQ(deviation(wide, "fc.bias"), 0);
}

TEST(WideResNet, DropsBetweenTheConvolutionsInTrainingOnly) {
  manual_seed(3);
  nn::WideResNet model({.depth = 10, .widen = 1, .dropout = 0.5});
  const Tensor x = cast(fixture_noise({2, 8, 8, 3}, 1), DType::f32);
  EXPECT_FALSE(test::same_bytes(model(x), model(x)));
  model.train(false);
  EXPECT_TRUE(test::same_bytes(model(x), model(x)));
}

TEST(WideResNet, HasOnlyDepthsOfWholeBlocks) {
  for (const int64_t depth : {4, 12, 27})
    EXPECT_EQ(test::message_of<UsageError>([&] { nn::WideResNet({.depth = depth}); }),
              concat("wide_resnet: expected a depth of 6 n + 4, such as 16 or 28, got ", depth));
}

// ... of which AddressSanitizer sees two: the others take it minutes.
void expect_ten_steps(DType dtype, const char* losses, int64_t batch, double lr, double tolerance) {
  const std::vector<double> want = values(fixture("resnet")[losses]);
  const auto model = network<nn::ResNet>({}, 512, dtype);
  FlatParameters flat(*model);
  Sgd sgd(flat, {.momentum = 0.9, .weight_decay = 1e-4, .nesterov = true});
#if defined(__SANITIZE_ADDRESS__)
  constexpr uint64_t kSteps = 2;
#else
  constexpr uint64_t kSteps = 10;
#endif
  for (uint64_t step = 0; step < kSteps; ++step) {
    sgd.zero_grad();
    const Tensor x = cast(fixture_noise({batch, 32, 32, 3}, 1001 + step), dtype);
    const Tensor loss = cross_entropy((*model)(x), fixture_labels(batch));
    backward(loss);
    sgd.step(lr);
    EXPECT_NEAR(loss.item(), want[step], tolerance * want[step]) << "step " << step;
  }
}

TEST(ResNet, TenStepsInDoubleHavePyTorchsLosses) { expect_ten_steps(DType::f64, "losses", 4, 0.02, 1e-8); }
TEST(ResNet, TenStepsInFloatHavePyTorchsLosses) { expect_ten_steps(DType::f32, "losses_slow", 16, 1e-4, 1e-4); }

// Images that are learned by heart show that every part of the network gets its gradient.
TEST(ResNet, LearnsAFewImagesByHeart) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "minutes under AddressSanitizer, which the steps above have seen";
#endif
  constexpr int64_t kImages = 96, kBatch = 32, kMaxEpochs = 40;
  const Dataset images = load_shapes({.settings = ShapesOptions{kImages, 1}, .seed = 1}).train;
  const Loader loader(images, all_samples(images), {.batch_size = kBatch, .shuffle = true});
  manual_seed(1);
  nn::ResNet model({.width = 16});
  FlatParameters flat(model);
  Sgd sgd(flat, {.momentum = 0.9, .weight_decay = 5e-4});
  const auto right = [&] {
    const NoGrad no_grad;
    model.train(false);
    Tally tally;
    for (const Batch& batch : loader.epoch(0)) {
      const Tensor logits = model(batch.x);
      tally.add(cross_entropy(logits, batch.y), logits, batch.y);
    }
    tally.finish();
    model.train(true);
    return tally.top1();
  };
  int64_t epoch = 0;
  double top1 = 0;
  for (; epoch < kMaxEpochs && top1 < 1; ++epoch) {
    for (const Batch& batch : loader.epoch(epoch)) {
      sgd.zero_grad();
      backward(cross_entropy(model(batch.x), batch.y));
      sgd.step(0.02);
    }
    if (epoch % 2 == 1) top1 = right();
  }
  EXPECT_EQ(top1, 1) << "after " << epoch << " epochs";
}

TEST(ResNet, HasThePublishedNumbersOfParameters) {
  const auto count = [](const nn::ResNet::Options& o) {
    nn::ResNet model(o);
    return nn::count_parameters(model);
  };
  EXPECT_EQ(count({}), 11'173'962);
  EXPECT_EQ(count({.classes = 100}), 11'220'132);
  EXPECT_EQ(count({.classes = 1000, .stem = nn::Stem::imagenet}), 11'689'512);
  EXPECT_EQ(count({.blocks = {3, 4, 6, 3}, .classes = 1000, .stem = nn::Stem::imagenet}), 21'797'672);
  nn::ResNet::Options large{
      .blocks = {3, 4, 6, 3}, .block = nn::Block::bottleneck, .classes = 1000, .stem = nn::Stem::imagenet};
  EXPECT_EQ(count(large), 25'557'032);
  large.blocks[2] = 23;
  EXPECT_EQ(count(large), 44'549'160);
  nn::WideResNet wide({});
  EXPECT_EQ(nn::count_parameters(wide), 36'479'194);
}

TEST(ResNet, SummaryShowsEveryLayer) {
  nn::ResNet model({});
  const std::string text = nn::summary(model, {1, 32, 32, 3});
  EXPECT_NE(text.find("11,173,962 parameters"), std::string::npos) << text;
  for (const char* line : {"conv1", "(1, 32, 32, 64)", "layer2.0.downsample.0",
                           "Conv2d(64 -> 128, 1x1, stride 2, no bias)", "(1, 4, 4, 512)", "layer4.1.bn2", "fc"})
    EXPECT_NE(text.find(line), std::string::npos) << line << " is not in\n" << text;
}

TEST(ResNet, TheStemMayLookFurtherAround) {
  nn::ResNet model({.stem_padding = 2});
  const std::string text = nn::summary(model, {1, 32, 32, 3});
  for (const char* line : {"(1, 34, 34, 64)", "(1, 17, 17, 128)", "(1, 9, 9, 256)", "(1, 5, 5, 512)"})
    EXPECT_MENTIONS(text, line);
}

TEST(ResNet, ThreadsShareAModelInEvaluationMode) {
  manual_seed(1);
  nn::ResNet model({.width = 8});
  model(randn({4, 32, 32, 3}));  // running statistics that are not those of the start
  model.train(false);
  std::vector<Tensor> images, expected;
  const NoGrad no_grad;
  for (int i = 0; i < 6; ++i) {
    images.push_back(randn({1 + i % 3, 32, 32, 3}));
    expected.push_back(model(images.back()));
  }
  std::vector<std::vector<Tensor>> found(4, std::vector<Tensor>(images.size()));
  std::vector<std::jthread> threads;
  for (size_t t = 0; t < found.size(); ++t)
    threads.emplace_back([&, t] {
      const NoGrad none;
      for (size_t round = 0; round < 5; ++round)
        for (size_t i = 0; i < images.size(); ++i) found[t][i] = model(images[(i + t) % images.size()]);
    });
  threads.clear();
  for (size_t t = 0; t < found.size(); ++t)
    for (size_t i = 0; i < images.size(); ++i)
      EXPECT_EQ(values(found[t][i]), values(expected[(i + t) % images.size()])) << t << ' ' << i;
}

TEST(ResNet, TheImageNetStemTakesLargeImages) {
  nn::ResNet model({.classes = 7, .stem = nn::Stem::imagenet});
  model.train(false);
  const NoGrad no_grad;
  EXPECT_EQ(model(zeros({1, 128, 160, 3})).shape(), (Shape{1, 7}));
}

}  // namespace
}  // namespace ringtape
