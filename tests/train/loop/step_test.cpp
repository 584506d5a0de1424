// One optimization step: accumulation, clipping, the loss scale, averaged weights.
#include "train/loop/step.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "autograd/autocast.h"
#include "autograd/create.h"
#include "kernels/conv2d.h"
#include "kernels/gradient.h"
#include "nn/nn.h"
#include "tests/support/settings.h"
#include "tests/support/support.h"
#include "train/loop/step_parts.h"

namespace ringtape {
namespace {

using test::expect_close;
using test::values;

struct Workshop {
  std::unique_ptr<nn::Sequential> model = std::make_unique<nn::Sequential>();
  Tensor x, y;
  std::unique_ptr<Step> step;

  explicit Workshop(const TrainOptions& options, double size = 1) {
    manual_seed(4);
    model->add<nn::Linear>(6, 8).add<nn::ReLU>().add<nn::Linear>(8, 5);
    x = randn({13, 6}, 0, size);
    std::vector<int64_t> labels;
    for (int64_t i = 0; i < 13; ++i) labels.push_back(i % 5);
    y = from_host(labels, {13});
    step = std::make_unique<Step>(*model, cross_entropy_of(*model, nullptr, options.step.label_smoothing), options.step,
                                  options.execution);
  }
  std::vector<double> weights() const {
    std::vector<double> out;
    for (const nn::Named& p : nn::named_parameters(*model))
      for (double w : values(*p.tensor)) out.push_back(w);
    return out;
  }
  double gradient_norm() const {
    double squares = 0;
    for (const nn::Named& p : nn::named_parameters(*model))
      for (double g : values(grad(*p.tensor))) squares += g * g;
    return std::sqrt(squares);
  }
};

TrainOptions sgd(double lr) {
  TrainOptions o;
  o.step.optimizer.name = "sgd", o.schedule.lr = lr;
  return o;
}

void expect_near(const std::vector<double>& a, const std::vector<double>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance) << i;
}

TEST(Step, PartsOfABatchAddUpToIt) {
  for (int64_t parts : {2, 4, 13, 20}) {
    TrainOptions o = sgd(0.1);
    Workshop whole(o);
    o.step.accumulate = parts;
    Workshop apart(o);
    for (int i = 0; i < 5; ++i) {
      const Step::Result a = whole.step->run(whole.x, whole.y, 0.1), b = apart.step->run(apart.x, apart.y, 0.1);
      EXPECT_NEAR(a.loss.item(), b.loss.item(), 1e-6);
      EXPECT_EQ(a.loss.shape(), b.loss.shape());
      expect_close(b.logits, a.logits, 1e-5, 1e-6, "logits");
    }
    expect_near(apart.weights(), whole.weights(), 1e-6);
  }
}

// torch.nn.utils.clip_grad_norm_: g *= min(1, max_norm / (norm + 1e-6)).
// With both labels by their shares, and the one with the larger share counted as right.
TEST(Step, LearnsBothLabelsOfMixedImages) {
  TrainOptions o = sgd(0.1);
  o.step.label_smoothing = 0.1;
  const Workshop alone(o);
  const Tensor other = from_host(std::vector<int64_t>{4, 0, 0, 1, 2, 3, 0, 1, 1, 1, 1, 1, 1}, {13});
  const Tensor logits = (*alone.model)(alone.x);
  const double want =
      0.375 * cross_entropy(logits, alone.y, 0.1).item() + 0.625 * cross_entropy(logits, other, 0.1).item();
  std::vector<double> weights;
  for (const int64_t parts : {1, 4}) {
    o.step.accumulate = parts;
    Workshop shop(o);
    const Step::Result result = shop.step->run(shop.x, {shop.y, other, 0.375}, 0.1, {}, {.counts = true});
    EXPECT_NEAR(result.loss.item(), want, 1e-6);
    EXPECT_EQ(result.right.top1, count_right({logits.detach()}, other).top1);
    if (weights.empty()) weights = shop.weights();
    else expect_near(shop.weights(), weights, 1e-6);
  }
}

TEST(Step, ClipsAllGradientsTogether) {
  for (double most : {0.05, 100.0}) {
    TrainOptions o = sgd(1);
    test::set(o, {{"momentum", "0"}});
    Workshop plain(o);
    o.step.clip_grad_norm = most;
    Workshop clipped(o);
    const std::vector<double> before = plain.weights();
    plain.step->run(plain.x, plain.y, 1), clipped.step->run(clipped.x, clipped.y, 1);
    const double norm = clipped.gradient_norm(), factor = std::min(1.0, most / (norm + 1e-6));
    EXPECT_NEAR(clipped.step->gradient_scale().norm().item(), norm, 1e-6);
    EXPECT_EQ(factor < 1, most < 1);
    std::vector<double> expected = before;
    const std::vector<double> moved = plain.weights();
    for (size_t i = 0; i < before.size(); ++i) expected[i] += factor * (moved[i] - before[i]);
    expect_near(clipped.weights(), expected, 1e-6);
  }
}

TEST(Step, FrozenWeightsAreAmongWhatRanksHaveAlike) {
  nn::Sequential model;
  model.add<nn::Linear>(3, 4).add<nn::Linear>(4, 2);
  nn::freeze(model, [](const std::string& name) { return name.starts_with("0."); });
  const TrainOptions o = sgd(0.1);
  const Step step(model, cross_entropy_of(model, nullptr, 0), o.step, o.execution);
  const std::vector<Tensor> alike = step.replicated();
  const std::vector<nn::Named> frozen = nn::named_frozen(model);
  EXPECT_EQ(frozen.size(), 2u);
  for (const nn::Named& f : frozen)
    EXPECT_TRUE(std::ranges::any_of(alike, [&](const Tensor& t) { return View(t).data == View(*f.tensor).data; }))
        << f.name;
}

TEST(Step, ClippingLeavesOutParametersWithoutAGradient) {
  nn::Sequential model;
  model.add<nn::Linear>(3, 3).add<nn::Linear>(3, 3).add<nn::Linear>(3, 3);
  FlatParameters flat(model);
  flat.gradients().span<float>()[70] = 1e30f;  // in the second layer
  GradientScale scale(Device{}, {.max_norm = 1});
  backward(sum(model[2](model[0](ones({2, 3})))));
  double squares = 0;
  for (size_t i : {0, 2})
    for (const nn::Named& p : nn::named_parameters(model[i]))
      for (double g : values(grad(*p.tensor))) squares += g * g;
  scale.factor(flat.gradient_squares());
  EXPECT_NEAR(scale.norm().item(), std::sqrt(squares), 1e-5);
}

TEST(Step, TrainsInSixteenBitsNearlyAsInF32) {
  for (const char* precision : {"bf16", "f16"}) {
    TrainOptions o = sgd(0.1);
    Workshop exact(o);
    o.execution.precision = precision;
    Workshop half(o);
    const double first = exact.step->run(exact.x, exact.y, 0.1).loss.item();
    EXPECT_NEAR(half.step->run(half.x, half.y, 0.1).loss.item(), first, 0.02);
    double last = 0;
    for (int i = 0; i < 60; ++i)
      last = exact.step->run(exact.x, exact.y, 0.1).loss.item(), half.step->run(half.x, half.y, 0.1);
    EXPECT_LT(last, 0.7 * first);
    EXPECT_NEAR(half.step->run(half.x, half.y, 0.1).loss.item(), last, 0.05) << precision;
    for (const nn::Named& p : nn::named_parameters(*half.model)) EXPECT_EQ(p.tensor->dtype(), DType::f32);
  }
}

TEST(Step, AnOverflowOfF16LeavesTheStepOutAndHalvesTheScale) {
  TrainOptions o = sgd(0.1);
  o.execution.precision = "f16";
  o.step.ema = 0.5;
  Workshop shop(o, 30);  // gradients of about 30, times 65536
  const std::vector<double> before = shop.weights();
  const auto scale = [&] { return shop.step->gradient_scale().state().span<float>()[0]; };
  shop.step->run(shop.x, shop.y, 0.1);
  EXPECT_EQ(scale(), 32768);
  EXPECT_EQ(shop.weights(), before);
  for (const FileTensor& t : shop.step->state())
    if (t.name.starts_with("velocity")) {
      for (double v : values(t.get({0, t.rows()}))) ASSERT_EQ(v, 0);
    }
  for (int i = 0; i < 20 && shop.weights() == before; ++i) shop.step->run(shop.x, shop.y, 0.1);
  EXPECT_LT(scale(), 32768);
  EXPECT_NE(shop.weights(), before);
  for (double w : shop.weights()) EXPECT_TRUE(std::isfinite(w));
}

TEST(Step, TheLossScaleGrowsAndShrinksByItsRule) {
  const auto one = [](float x) { return from_host(std::vector<float>{x}, {1}); };
  const auto squares = [](double x) { return from_host(std::vector<double>{x / 4, 0, x / 4, x / 2}, {4}); };
  Tensor factor = one(0), norm = one(0), scale = from_host(std::vector<float>{1024, 0}, {2});
  const GradientRule rule{.max_norm = 0.5, .growth = 2, .backoff = 0.5, .interval = 3};
  const auto state = [&] { return std::pair(scale.span<float>()[0], scale.span<float>()[1]); };
  for (int i = 1; i <= 3; ++i) gradient_factor(factor, norm, scale, squares(1024.0 * 1024 * 9), rule);
  EXPECT_EQ(state(), std::pair(2048.0f, 0.0f));
  EXPECT_FLOAT_EQ(norm.span<float>()[0], 3);
  EXPECT_FLOAT_EQ(factor.span<float>()[0], 0.5f / 3.000001f / 1024);
  gradient_factor(factor, norm, scale, squares(1), rule);
  EXPECT_EQ(state(), std::pair(2048.0f, 1.0f));
  EXPECT_FLOAT_EQ(factor.span<float>()[0], 1.0f / 2048);
  gradient_factor(factor, norm, scale, squares(INFINITY), rule);
  EXPECT_EQ(state(), std::pair(1024.0f, 0.0f));
  EXPECT_EQ(factor.span<float>()[0], 0);
  gradient_factor(factor, norm, View{}, squares(NAN), rule);  // without a loss scale the error must be visible
  EXPECT_TRUE(std::isnan(factor.span<float>()[0]));
  gradient_factor(factor, norm, View{}, squares(INFINITY), rule);
  EXPECT_TRUE(std::isnan(factor.span<float>()[0]));
}

TEST(Step, SumsOfSquaresAreTheSameForAnyNumberOfThreads) {
  manual_seed(1);
  nn::Sequential model;
  model.add<nn::Linear>(3, 3).add<nn::Linear>(100, 200).add<nn::Linear>(70'000, 2);
  const FlatParameters flat(model);
  const Tensor x = flat.values();
  double expected = 0;
  for (double v : values(x)) expected += v * v;
  std::vector<std::vector<double>> sums;
  for (int threads : {1, 2, 3}) {
    test::with_threads(threads, [&] { sums.push_back(values(flat.value_squares())); });
    EXPECT_EQ(sums.back(), sums[0]);
    EXPECT_NEAR(std::accumulate(sums[0].begin(), sums[0].end(), 0.0) / expected, 1, 1e-12);
  }
}

TEST(Step, AveragesTheWeights) {
  TrainOptions o = sgd(0.1);
  o.step.ema = 0.9;
  Workshop shop(o);
  std::vector<double> expected = shop.weights();
  for (int i = 0; i < 4; ++i) {
    shop.step->run(shop.x, shop.y, 0.1);
    const std::vector<double> now = shop.weights();
    for (size_t j = 0; j < now.size(); ++j) expected[j] = 0.9 * expected[j] + 0.1 * now[j];
  }
  std::vector<double> average;
  for (const FileTensor& t : shop.step->average())
    for (double w : values(t.get({0, t.rows()}))) average.push_back(w);
  expect_near(average, expected, 1e-6);
  const std::vector<double> own = shop.weights();
  {
    const Ema::Use use(*shop.step->ema());
    EXPECT_EQ(shop.weights(), average);
  }
  EXPECT_EQ(shop.weights(), own);
  try {
    const Ema::Use use(*shop.step->ema());
    throw Error("a failed evaluation");
  } catch (const Error&) {
  }
  EXPECT_EQ(shop.weights(), own);
}

// In 16 bits the weights of a step are windows of one conversion, with the values and gradients of many.
TEST(FlatParameters, AreConvertedAtOnce) {
  const auto train = [](DType dtype, bool at_once) {
    manual_seed(3);
    nn::Sequential model;
    model.add<nn::Linear>(24, 17).add<nn::ReLU>().add<nn::Linear>(17, 5);
    FlatParameters flat(model);
    const std::vector<nn::Named> named = nn::named_parameters(model);
    const Tensor x = randn({6, 24});
    {
      const Autocast autocast(dtype);
      std::optional<FlatParameters::Converted> converted;
      if (at_once) converted.emplace(flat, dtype);
      const Tensor a = cast(*named[0].tensor, DType::bf16), b = cast(*named[2].tensor, DType::bf16),
                   bias = cast(*named[1].tensor, DType::bf16), other = cast(*named[0].tensor, DType::f16);
      EXPECT_EQ(a.storage() == b.storage(), at_once && dtype == DType::bf16);
      EXPECT_NE(bias.storage(), a.storage());
      EXPECT_EQ(other.dtype(), DType::f16);
      backward(sum(square(model(x))));
      flat.written("a test");  // then they are converted as they are
      EXPECT_NE(cast(*named[0].tensor, DType::bf16).storage(), a.storage());
    }
    EXPECT_NE(cast(*named[0].tensor, DType::bf16).storage(), cast(*named[2].tensor, DType::bf16).storage());
    std::vector<std::vector<double>> out;
    for (const nn::Named& p : named) out.push_back(test::values(grad(*p.tensor)));
    return out;
  };
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) EXPECT_EQ(train(dtype, true), train(dtype, false));
}

}  // namespace
}  // namespace ringtape
