// Residual networks beside PyTorch's, from the same weights and images: tests/fixtures/make_resnet.py.
#include "nn/resnet.h"

#include <cmath>
#include <set>

#include "autograd/create.h"
#include "kernels/conv2d.h"
#include "nn/wide_resnet.h"
#include "tests/support/support.h"
#include "train/data/loader.h"
#include "train/data/shapes.h"
#include "train/evaluation/metrics.h"
#include "train/io/safetensors.h"
#include "train/optim/sgd.h"

namespace ringtape {
namespace {

using test::expect_close;
using test::values;

// Uniform in [-1, 1): splitmix64 of seed * 2^32 + i, as the script has it.
Tensor noise(const Shape& shape, uint64_t seed) {
  Tensor x(shape, DType::f64);
  for (int64_t i = 0; i < x.size(); ++i) {
    uint64_t z = ((seed << 32) + uint64_t(i) + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    x.data<double>()[i] = double((z ^ (z >> 31)) >> 11) * 0x1p-52 - 1;
  }
  return x;
}

bool of_batch_norm(const std::string& name) {
  return name.find("bn") != std::string::npos || name.find("downsample.1") != std::string::npos;
}

// `features`: the inputs of the last layer.
template <class Network>
std::unique_ptr<Network> network(const typename Network::Options& options, int64_t features, DType dtype) {
  auto model = std::make_unique<Network>(options);
  uint64_t number = 0;
  for (const nn::Named& p : nn::named_parameters(*model)) {
    const Shape shape = p.tensor->shape();
    const Tensor u = noise(shape, number++);
    const double fan_in = shape.rank() == 4 ? double(shape.size() / shape[0]) : double(features),
                 first = p.name.ends_with("weight") ? 1 : 0;
    *p.tensor = leaf(cast(of_batch_norm(p.name) ? first + 0.2 * u : u * (1 / std::sqrt(fan_in)), dtype));
  }
  for (const nn::Named& b : nn::named_buffers(*model))
    if (is_float(b.tensor->dtype())) *b.tensor = cast(*b.tensor, dtype);
  return model;
}

Tensor labels(int64_t count) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(i * 7 % 10);
  return from_host(out, {count});
}

double norm(const std::vector<double>& v) {
  double sum = 0;
  for (double x : v) sum += x * x;
  return std::sqrt(sum);
}

// Without Winograd's transforms, while it lives.
struct Exactly {
  Exactly() { set_exact_convolutions(true); }
  ~Exactly() { set_exact_convolutions(before); }
  const bool before = exact_convolutions();
};

// Of each gradient the fixture has a few elements, the norm and a projection.
void expect_gradient(const Tensor& g, const std::vector<double>& want, uint64_t number, double tolerance,
                     const std::string& name) {
  const std::vector<double> all = values(g), direction = values(noise({g.size()}, 2000 + number));
  const size_t elements = want.size() - 2;
  const double scale = want[elements], typical = scale / std::sqrt(double(all.size()));
  double projection = 0;
  for (size_t i = 0; i < all.size(); ++i) projection += all[i] * direction[i];
  EXPECT_NEAR(norm(all), scale, tolerance * scale) << name;
  EXPECT_NEAR(projection, want[elements + 1], tolerance * scale) << name;
  for (size_t i = 0; i < elements; ++i)
    EXPECT_NEAR(all[i * all.size() / elements], want[i], tolerance * 10 * typical) << name << ", element " << i;
}

Safetensors fixture(const std::string& name) {
  return read_safetensors(concat(RINGTAPE_SOURCE_DIR "/tests/fixtures/", name, ".safetensors"));
}

void expect_one_step(nn::Module* model, const std::string& name, const Tensor& images, double tolerance) {
  const Safetensors file = fixture(name);
  const Tensor logits = (*model)(images), loss = cross_entropy(logits, labels(images.dim(0)));
  expect_close(logits, file["logits"], tolerance, tolerance, "logits");
  EXPECT_NEAR(loss.item(), values(file["loss"])[0], tolerance);
  backward(loss);
  uint64_t number = 0;
  for (const nn::Named& p : nn::named_parameters(*model)) {
    expect_gradient(grad(*p.tensor), values(file["grad/" + p.name]), number, tolerance, p.name);
    ++number;
  }
  for (const nn::Named& b : nn::named_buffers(*model))
    if (b.name.find("running") != std::string::npos)
      expect_close(*b.tensor, file["running/" + b.name], tolerance, tolerance, b.name);
}

void expect_one_step_of_resnet18(DType dtype, double tolerance) {
  const auto model = network<nn::ResNet>({}, 512, dtype);
  expect_one_step(model.get(), "resnet", cast(noise({2, 32, 32, 3}, 1100), dtype), tolerance);
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
  expect_one_step(model.get(), "bottleneck", noise({4, 64, 64, 3}, 1200), 1e-8);
}
TEST(WideResNet, GradientsArePyTorchs) {
  const auto model = network<nn::WideResNet>({.depth = 10, .widen = 2}, 128, DType::f64);
  expect_one_step(model.get(), "wide_resnet", noise({2, 32, 32, 3}, 1300), 1e-8);
}

// Everything that the fixture names, and nothing else.
void expect_names(nn::Module& model, const std::string& name) {
  std::set<std::string> ours, theirs;
  for (const nn::Named& p : nn::named_parameters(model)) ours.insert("grad/" + p.name);
  for (const nn::Named& b : nn::named_buffers(model))
    if (b.name.find("running") != std::string::npos) ours.insert("running/" + b.name);
  for (const NamedTensor& t : fixture(name).tensors)
    if (t.name.find('/') != std::string::npos) theirs.insert(t.name);
  EXPECT_EQ(ours, theirs) << name;
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
  const Tensor x = cast(noise({2, 8, 8, 3}, 1), DType::f32);
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
    const Tensor loss = cross_entropy((*model)(cast(noise({batch, 32, 32, 3}, 1001 + step), dtype)), labels(batch));
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
  constexpr int64_t kImages = 96, kBatch = 32, kMostEpochs = 40;
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
  for (; epoch < kMostEpochs && top1 < 1; ++epoch) {
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

TEST(ResNet, TheImageNetStemTakesLargeImages) {
  nn::ResNet model({.classes = 7, .stem = nn::Stem::imagenet});
  model.train(false);
  const NoGrad no_grad;
  EXPECT_EQ(model(zeros({1, 128, 160, 3})).shape(), (Shape{1, 7}));
}

}  // namespace
}  // namespace ringtape
