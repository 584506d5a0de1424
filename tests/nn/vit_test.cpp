// Vision transformers beside timm's, from the same weights and images: tests/fixtures/make_vit.py.
#include "nn/vit.h"

#include <algorithm>

#include "nn/ssl/method.h"
#include "tests/support/network_fixtures.h"

namespace ringtape {
namespace {

using test::fixture_noise;
using test::values;

const nn::VisionTransformer::Options kSmall{
    .image = {8, 12}, .patch = 4, .classes = 10, .width = 16, .depth = 2, .heads = 2};

std::unique_ptr<nn::VisionTransformer> small_vit(DType dtype) {
  return test::network<nn::VisionTransformer>(kSmall, 16, dtype);
}

TEST(VisionTransformer, GradientsAreTimms) {
  test::expect_one_step(small_vit(DType::f64).get(), "vit", fixture_noise({2, 8, 12, 3}, 1500), 1e-8);
  test::expect_one_step(small_vit(DType::f32).get(), "vit", cast(fixture_noise({2, 8, 12, 3}, 1500), DType::f32), 1e-4);
}

TEST(VisionTransformer, NamesAreTimms) { test::expect_names(*small_vit(DType::f32), "vit"); }

// timm resamples in f32.
TEST(VisionTransformer, ImagesOfOtherSizesHaveResampledPositions) {
  const auto model = small_vit(DType::f64);
  for (const auto& [height, width] : {std::pair{12, 20}, {8, 4}})
    test::expect_close((*model)(fixture_noise({2, height, width, 3}, 1501)),
                       test::fixture("vit")[concat("resampled_", height, "x", width)], 1e-6, 1e-6, "logits");
}

TEST(VisionTransformer, StartsAsTimmsDoes) {
  manual_seed(1);
  nn::VisionTransformer model({.image = {32, 32}, .patch = 4, .classes = 10, .depth = 1});
  for (const nn::Named& p : nn::named_parameters(model)) {
    const Tensor x = p.tensor->detach();
    const double deviation = standard_deviation(x).item();
    if (p.name.starts_with("patch_embed")) EXPECT_NEAR(deviation, 1 / std::sqrt(3 * 48.0), 0.005) << p.name;
    else if (p.name == "cls_token") EXPECT_NEAR(deviation, 1e-6, 2e-7);
    else if (p.name.ends_with("bias")) EXPECT_EQ(deviation, 0) << p.name;
    else if (p.name.find("norm") != std::string::npos) EXPECT_EQ(mean(x).item(), 1) << p.name;
    else EXPECT_NEAR(deviation, 0.02, 0.001) << p.name;
  }
}

TEST(VisionTransformer, CheckpointingHasTheSameBytes) {
  std::vector<Tensors> after;
  for (const bool on : {false, true}) {
    manual_seed(2);
    nn::VisionTransformer model({.image = {8, 8},
                                 .patch = 4,
                                 .classes = 3,
                                 .width = 8,
                                 .depth = 3,
                                 .heads = 2,
                                 .drop_path = 0.5,
                                 .checkpointing = on});
    model.train();
    backward(sum(square(model(cast(fixture_noise({6, 8, 8, 3}, 1502), DType::f32)))));
    Tensors& all = after.emplace_back();
    for (const nn::Named& p : nn::named_parameters(model)) all.push_back(grad(*p.tensor));
  }
  ASSERT_GT(after[0].size(), 30u);
  for (size_t i = 0; i < after[0].size(); ++i) EXPECT_TRUE(test::same_bytes(after[0][i], after[1][i])) << i;
}

TEST(DropPath, DropsSamplesAndKeepsTheExpectation) {
  manual_seed(3);
  nn::DropPath layer(0.25);
  layer.train();
  const Tensor x = ones({4000, 2, 3}), y = layer(x);
  EXPECT_NEAR(mean(y).item(), 1, 0.03);
  const std::vector<double> all = values(y);
  for (size_t i = 0; i < all.size(); i += 6)
    for (size_t j = 0; j < 6; ++j)
      ASSERT_TRUE(all[i + j] == all[i] && (all[i] == 0 || std::abs(all[i] - 4 / 3.0) < 1e-6));
  EXPECT_EQ(values(nn::DropPath(1)(x)), values(zeros(x.shape())));
  layer.train(false);
  EXPECT_TRUE(test::same_bytes(layer(x), x));
}

TEST(VisionTransformer, BadSizesAreErrors) {
  EXPECT_MENTIONS(test::message_of<UsageError>([] {
                    nn::VisionTransformer({.image = {30, 32}, .patch = 4});
                  }),
                  "images of 30x32 are not whole patches of 4x4");
  EXPECT_MENTIONS(test::message_of<UsageError>([] { nn::SelfAttention(10, 3); }), "a width of 10");
  const auto model = small_vit(DType::f64);
  EXPECT_MENTIONS(test::message_of<UsageError>([&] { (*model)(fixture_noise({1, 9, 12, 3}, 1)); }), "9x12");
}

// Predictions depend on the patches that are seen, targets on the others.
TEST(Mae, TheEncoderSeesNoHiddenPatch) {
  manual_seed(4);
  const nn::Backbone backbone{[] {
                                return std::make_unique<nn::VisionTransformer>(nn::VisionTransformer::Options{
                                    .image = {8, 12}, .patch = 4, .classes = 0, .width = 16, .depth = 2, .heads = 2});
                              },
                              16};
  const nn::MethodEntry& entry = nn::find_method("mae");
  const auto method = entry.make(backbone, entry.settings);
  method->begin_step({.step = 3, .steps = 10, .seed = 5});
  const Tensor view = cast(fixture_noise({2, 8, 12, 3}, 1503), DType::f32);
  const Tensors inputs = method->inputs({view});
  ASSERT_EQ(inputs[1].shape(), (Shape{2, 6}));
  const NoGrad no_grad;
  const Tensors before = method->outputs(inputs);
  const std::vector<double> first = values(slice(inputs[1], 0, 0, 1));
  const auto least = std::ranges::min_element(first) - first.begin();  // of 6 patches one is seen
  for (int64_t patch = 0; patch < 6; ++patch) {
    const Tensor changed = contiguous(view * 1.0);
    for (int64_t i = 0; i < 4; ++i)
      changed.data<float>()[((patch / 3 * 4 + i) * 12 + patch % 3 * 4) * 3] += 1.0f + float(i);
    const Tensors after = method->outputs({changed, inputs[1]});
    EXPECT_EQ(test::same_bytes(after[0], before[0]), patch != least) << patch;
    EXPECT_EQ(test::same_bytes(after[1], before[1]), patch == least) << patch;
  }
  EXPECT_TRUE(test::same_bytes(method->inputs({view})[1], inputs[1]));
  method->begin_step({.step = 4, .steps = 10, .seed = 5});
  EXPECT_FALSE(test::same_bytes(method->inputs({view})[1], inputs[1]));
}

}  // namespace
}  // namespace ringtape
