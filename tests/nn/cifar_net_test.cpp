// CifarNet and its whitening beside PyTorch's: tests/fixtures/make_cifar_net.py.
#include "nn/cifar_net.h"

#include "nn/data_parallel.h"
#include "nn/freeze.h"
#include "nn/sequential.h"
#include "nn/whitening.h"
#include "tests/support/network_fixtures.h"

namespace ringtape {
namespace {

using test::expect_close;
using test::fixture;
using test::fixture_noise;
using test::values;

TEST(CifarNet, GradientsArePyTorchs) {
  const auto model = test::network<nn::CifarNet>({.width = 8}, 32, DType::f64);
  for (const nn::Named& f : nn::named_frozen(*model)) {
    EXPECT_EQ(f.name, "whiten.weight");
    *f.tensor = fixture_noise({24, 2, 2, 3}, 900) * (1 / std::sqrt(12.0));
  }
  test::expect_one_step(model.get(), "cifar_net", fixture_noise({3, 32, 32, 3}, 1400), 1e-8);
  test::expect_names(*model, "cifar_net");
}

TEST(CifarNet, HasThePublishedNumberOfParameters) {  // 1.97 million
  nn::CifarNet model({});
  EXPECT_EQ(nn::count_parameters(model), 1'971'640);
}

TEST(CifarNet, TakesImagesOfOtherSizes) {
  nn::CifarNet model({.width = 4, .in = 1, .classes = 7}), backbone({.width = 4, .classes = 0});
  model.train(false);
  const NoGrad no_grad;
  EXPECT_EQ(model(zeros({2, 9, 40, 1})).shape(), (Shape{2, 7}));
  EXPECT_EQ(backbone(zeros({2, 28, 28, 3})).shape(), (Shape{2, 16}));
  EXPECT_EQ(test::message_of<UsageError>([&] {
              (void)model(zeros({2, 8, 9, 1}));
            }),
            "cifar_net: images of (2, 8, 9, 1); it takes 9x9 and larger");
}

TEST(CifarNet, TheFirstBiasIsTrainedInTheFirstEpochs) {
  nn::CifarNet model({.width = 4, .bias_epochs = 2});
  const size_t trained = nn::named_parameters(model).size();
  const Tensor x = randn({2, 12, 12, 3});
  for (int64_t epoch = 0; epoch < 4; ++epoch) {
    model.set_epoch(epoch);
    EXPECT_EQ(used_leaves(model(x)).size(), epoch < 2 ? trained : trained - 1) << "epoch " << epoch;
  }
}

TEST(CifarNet, ReplicasKnowTheEpoch) {
  const auto make = [] { return std::make_unique<nn::CifarNet>(nn::CifarNet::Options{.width = 4, .bias_epochs = 1}); };
  const auto model = make();
  nn::DataParallel replicas(*model, make, {Device{DeviceType::cpu, 0}, Device{DeviceType::cpu, 1}});
  const Tensor x = randn({4, 12, 12, 3});
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    model->set_epoch(epoch);
    for (const nn::Named& p : nn::named_parameters(*model)) zero_grad(*p.tensor);
    backward(sum(replicas(x)));
    for (const nn::Named& p : nn::named_parameters(*model))
      EXPECT_EQ(grad(*p.tensor).defined(), epoch == 0 || p.name != "whiten.bias") << epoch << ", " << p.name;
  }
}

TEST(Dirac, TheFirstFiltersPassChannelsOn) {
  manual_seed(6);
  const nn::Conv2d::Options options = nn::without_bias(1, 1, nn::Init::dirac);
  nn::Conv2d wider(3, 5, 3, options), narrower(4, 2, 3, options);
  const Tensor x = randn({2, 6, 7, 4});
  const Tensor y = wider(slice(x, 3, 0, 3));
  expect_close(slice(y, 3, 0, 3), slice(x, 3, 0, 3), 1e-6, 1e-6, "wider");
  EXPECT_GT(min(standard_deviation(slice(y, 3, 3, 5), {0, 1, 2})).item(), 0.1);
  expect_close(narrower(x), slice(x, 3, 0, 2), 1e-6, 1e-6, "narrower");
}

TEST(BatchNorm, MayHaveABiasAlone) {
  nn::Sequential model;
  model.add<nn::BatchNorm>(3, nn::BatchNorm::Options{.scale = false});
  const auto& layer = dynamic_cast<const nn::BatchNorm&>(model[0]);
  ASSERT_EQ(nn::named_parameters(model).size(), 1u);
  EXPECT_EQ(nn::named_parameters(model)[0].name, "0.bias");
  EXPECT_EQ(nn::named_buffers(model)[0].name, "0.weight");
  const Tensor x = randn({5, 3});
  (void)model(x);
  EXPECT_EQ(layer.running().batches.item(), 1);
  nn::freeze(model, [](const std::string& name) { return name == "0.bias"; });
  (void)model(x);
  EXPECT_EQ(layer.running().batches.item(), 1) << "it is frozen";
}

// The images of make_cifar_net.py.
Tensor smooth_images() {
  const Tensor x = fixture_noise({4, 32, 32, 3}, 1500);
  return cast(avg_pool2d(x, 3, 3, square_window(1)) + mean(slice(slice(x, 1, 1, 31), 2, 1, 31), {3}, true), DType::f32);
}

TEST(Whitening, FiltersArePyTorchs) {
  const Tensor ours = nn::whitening_filters(smooth_images(), 2), theirs = fixture("cifar_net")["whitening"];
  ASSERT_EQ(ours.shape(), theirs.shape());
  for (int64_t i = 0; i < 24; ++i) {  // whichever of both directions is the first
    const Tensor a = cast(reshape(slice(ours, 0, i, i + 1), {12}), DType::f64),
                 b = reshape(slice(theirs, 0, i, i + 1), {12});
    expect_close(a * (sum(a * b).item() < 0 ? -1 : 1), b, 1e-4, 1e-4, concat("filter ", i));
  }
}

TEST(Whitening, PatchesHaveNoCorrelationBehindIt) {
  const Tensor x = smooth_images(), w = nn::whitening_filters(x, 2, 0);
  const Tensor y = reshape(conv2d(x, w), {-1, 24}), moments = matmul(transpose(y), y) / double(y.dim(0));
  const std::vector<double> m = values(moments);
  for (size_t i = 0; i < 24; ++i)
    for (size_t j = 0; j < 24; ++j)
      EXPECT_NEAR(m[24 * i + j], i == j ? 1 : i % 12 == j % 12 ? -1 : 0, 1e-3) << i << ", " << j;
  const auto with = [&](int threads) {
    return test::with_threads(threads, [&] { return nn::whitening_filters(x, 2); });
  };
  EXPECT_TRUE(test::same_bytes(with(1), with(3)));
  // Channels that are alike have eigenvalues of 0.
  const Tensor grey = contiguous(expand(slice(x, 3, 0, 1), {4, 30, 30, 3}));
  for (const double v : values(nn::whitening_filters(grey, 2))) ASSERT_LE(std::fabs(v), 1.0001 / std::sqrt(5e-4));
  EXPECT_EQ(test::message_of<ShapeError>([] {
              (void)nn::whitening_filters(zeros({0, 4, 4, 3}), 2);
            }),
            "whitening_filters: expected images (N, H, W, C) of at least 2x2, got (0, 4, 4, 3)");
}

}  // namespace
}  // namespace ringtape
