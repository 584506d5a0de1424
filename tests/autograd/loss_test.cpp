// Conventions of the losses, which are PyTorch's, beside plain formulas in double.
#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "autograd/autocast.h"
#include "autograd/create.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "tests/support/isas.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

using test::expect_close;
using test::values;

constexpr double kInf = std::numeric_limits<double>::infinity();

Tensor numbers(const std::vector<double>& x, const Shape& shape) { return from_host(x, shape); }
Tensor labels(const std::vector<int64_t>& x) { return from_host(x, {int64_t(x.size())}); }

// PyTorch's cross-entropy of rows of 4 classes.
struct Reference {
  std::vector<double> losses;
  double sum = 0, mean = 0;

  Reference(const Tensor& logits, const std::vector<int64_t>& label, double smoothing, std::vector<double> weight,
            int64_t ignored) {
    const std::vector<double> p = values(log_softmax(logits.detach()));
    if (weight.empty()) weight.assign(4, 1);
    double shares = 0;
    for (size_t r = 0; r < label.size(); ++r) {
      double loss = 0;
      if (label[r] != ignored) {
        const auto own = size_t(label[r]);
        loss -= (1 - smoothing) * weight[own] * p[4 * r + own];
        for (size_t c = 0; c < 4; ++c) loss -= smoothing / 4 * weight[c] * p[4 * r + c];
        shares += weight[own];
      }
      losses.push_back(loss);
      sum += loss;
    }
    mean = sum / shares;
  }
};

TEST(CrossEntropy, WeightsSmoothingAndIgnoredLabelsAreAsInPyTorch) {
  const Tensor logits = rand({6, 4}, -3, 3, DType::f64);
  const std::vector<int64_t> label{3, -100, 0, 2, 2, -100}, other{3, 1, 0, 2, 2, 1};
  for (double smoothing : {0.0, 0.2})
    for (const std::vector<double>& weight : {std::vector<double>{}, std::vector<double>{0.5, 0, 2, 3}})
      for (const int64_t ignored : {-100, 1, -1}) {
        const std::vector<int64_t>& given = ignored == -100 ? label : other;
        SCOPED_TRACE(concat("smoothing ", smoothing, ", ", weight.size(), " weights, ignored ", ignored));
        const Reference want(logits, given, smoothing, weight, ignored);
        CrossEntropyOptions options{.label_smoothing = smoothing, .ignore_index = ignored};
        if (!weight.empty()) options.weight = numbers(weight, {4});
        const auto loss = [&](LossReduction reduction) {
          options.reduction = reduction;
          return cross_entropy(logits, labels(given), options);
        };
        EXPECT_NEAR(loss(LossReduction::mean).item(), want.mean, 1e-12);
        EXPECT_NEAR(loss(LossReduction::sum).item(), want.sum, 1e-12);
        expect_close(loss(LossReduction::none), numbers(want.losses, {6}), 1e-12, 1e-12, "none");
        if (smoothing > 0) continue;
        const NllOptions nll{ignored, options.weight};
        EXPECT_NEAR(nll_loss(log_softmax(logits), labels(given), nll).item(), want.mean, 1e-12);
      }
}

TEST(CrossEntropy, IgnoredSamplesHaveNoGradient) {
  const Tensor x = leaf(rand({3, 4}));
  backward(cross_entropy(x, labels({1, -100, 2})));
  const Tensor all = grad(x), alone = leaf(index_select(x.detach(), 0, labels({0, 2})));
  backward(cross_entropy(alone, labels({1, 2})));
  expect_close(index_select(all, 0, labels({0, 2})), grad(alone), 0, 0, "gradient of the others");
  expect_close(slice(all, 0, 1, 2), zeros({1, 4}), 0, 0, "gradient of the ignored one");
  const Tensor nothing = leaf(rand({2, 4})), loss = cross_entropy(nothing, labels({-100, -100}));
  EXPECT_TRUE(std::isnan(loss.item()));
  backward(loss);
  expect_close(grad(nothing), zeros({2, 4}), 0, 0, "gradient if all are ignored");
}

TEST(CrossEntropy, TakesClassesLastOfAnyRank) {
  const Tensor x = rand({2, 3, 5, 4}, -2, 2), y = cast(rand({2, 3, 5}, 0, 4), DType::i64);
  const Tensor rows = reshape(x, {30, 4}), flat = reshape(y, {30});
  EXPECT_EQ(cross_entropy(x, y).item(), cross_entropy(rows, flat).item());
  const Tensor each = cross_entropy(x, y, 0.1, LossReduction::none);
  EXPECT_EQ(each.shape(), y.shape());
  expect_close(reshape(each, {30}), cross_entropy(rows, flat, 0.1, LossReduction::none), 0, 0, "none");
  EXPECT_EQ(test::message_of<ShapeError>([&] { cross_entropy(to_nchw(x), y); }),
            "cross_entropy: expected logits (..., C), the classes last, and labels (...), got (2, 4, 3, 5) and "
            "(2, 3, 5)");
}

TEST(CrossEntropy, TargetsMayBeProbabilities) {
  const Tensor x = rand({5, 4}, -2, 2, DType::f64);
  const std::vector<int64_t> label{3, 0, 1, 2, 2};
  std::vector<double> one_hot(20);
  for (size_t r = 0; r < 5; ++r) one_hot[4 * r + size_t(label[r])] = 1;
  const Tensor target = numbers(one_hot, {5, 4}), weight = numbers({0.5, 1, 2, 3}, {4});
  for (double smoothing : {0.0, 0.3})
    for (LossReduction reduction : {LossReduction::mean, LossReduction::sum, LossReduction::none})
      expect_close(cross_entropy(x, target, smoothing, reduction),
                   cross_entropy(x, labels(label), smoothing, reduction), 1e-12, 1e-12, "one-hot targets");
  // The mean is over samples, whatever the weights.
  const CrossEntropyOptions sum{.label_smoothing = 0.3, .weight = weight, .reduction = LossReduction::sum};
  const CrossEntropyOptions mean{.label_smoothing = 0.3, .weight = weight};
  EXPECT_NEAR(cross_entropy(x, target, mean).item(), cross_entropy(x, target, sum).item() / 5, 1e-12);
  const Tensor q = softmax(rand({5, 4}, -1, 1, DType::f64)), mixed = q * 0.7 + 0.3 / 4;
  const Tensor want = ringtape::sum(mixed * weight * log_softmax(x)) * -1.0;
  EXPECT_NEAR(cross_entropy(x, q, sum).item(), want.item(), 1e-12);
  const Tensor masked = numbers({1, -kInf, 2, 0}, {1, 4}), half = numbers({0.5, 0, 0.5, 0}, {1, 4});
  EXPECT_TRUE(std::isfinite(cross_entropy(masked, half).item()));
  const Tensor none = numbers({1, 0, 2, 3}, {4}), even = full({1, 4}, 0.25, DType::f64);
  EXPECT_TRUE(std::isfinite(cross_entropy(masked, even, {.weight = none}).item()));  // of the masked class
}

TEST(CrossEntropy, TakesTargetsOfTheDataUnderAutocast) {
  const Tensor x = leaf(rand({3, 4}, -2, 2, DType::bf16)), q = softmax(rand({3, 4}, -1, 1));
  EXPECT_THROW(cross_entropy(x, q), DTypeError);
  const Autocast autocast(DType::bf16);
  const Tensor loss = cross_entropy(x, q);
  EXPECT_EQ(loss.item(), cross_entropy(cast(x.detach(), DType::f32), cast(q, DType::f32)).item());
  backward(loss);
  EXPECT_EQ(grad(x).dtype(), DType::bf16);
}

TEST(CrossEntropy, LabelsMayBeShort) {
  const Tensor x = rand({3, 4}), long_labels = labels({1, -100, 3}), short_labels = cast(long_labels, DType::i32);
  EXPECT_EQ(cross_entropy(x, short_labels).item(), cross_entropy(x, long_labels).item());
  EXPECT_EQ(nll_loss(x, short_labels).item(), nll_loss(x, long_labels).item());
  EXPECT_EQ(test::message_of<DTypeError>([&] { nll_loss(x, greater(long_labels, 0)); }),
            "nll_loss: labels are b8, not i64 or i32; convert them with cast(labels, DType::i64)");
}

TEST(CrossEntropy, RefusesOtherLabels) {
  EXPECT_EQ(test::message_of<UsageError>([] {
              cross_entropy(ones({2, 4}), labels({1, 4}));
            }),
            "cross_entropy: label 4 of sample 1 with 4 classes");
  EXPECT_EQ(test::message_of<UsageError>([] {
              cross_entropy(ones({2, 4}), labels({1, -100}), {.ignore_index = 3});
            }),
            "cross_entropy: label -100 of sample 1 with 4 classes");
}

// A sum of many f32 losses has the error of a block.
TEST(Losses, SumsAreLongOnes) {
  const int64_t n = 3000001;
  const Tensor x = full({n}, 0.1), t = zeros({n});
  const double own = double(0.1f);
  EXPECT_NEAR(l1_loss(x, t, LossReduction::sum).item(), double(n) * own, double(n) * own * 1e-7);
  EXPECT_NEAR(l1_loss(x, t).item(), own, 1e-8);
  for (int threads : {1, 2, 3})
    test::with_threads(threads, [&] { EXPECT_EQ(mse_loss(x, t).item(), mse_loss(x, t).item()); });
}

using LossOf = std::function<Tensor(const Tensor&, const Tensor&, LossReduction)>;

// An element's digits depend neither on the threads nor on its place: a loop over the rest of whole vectors would
// round in another way.
void expect_same_everywhere(const LossOf& loss, const Tensor& x, const Tensor& t) {
  const auto gradient = [&loss](const Tensor& at, const Tensor& target) {
    const Tensor own = leaf(at);
    backward(loss(own, target, LossReduction::sum));
    return grad(own);
  };
  const auto part = [](const Tensor& whole, int64_t begin, int64_t n) { return slice(whole, 0, begin, begin + n); };
  const Tensor each = test::with_threads(1, [&] { return loss(x, t, LossReduction::none); });
  const Tensor slopes = test::with_threads(1, [&] { return gradient(x, t); });
  for (int64_t n = 1; n <= 601; ++n) {
    if (n == 601) n = x.size();
    SCOPED_TRACE(concat(n, " elements"));
    const Tensor a = part(x, 0, n), b = part(t, 0, n);
    const Tensor sum = test::with_threads(1, [&] { return loss(a, b, LossReduction::sum); });
    for (int threads : {1, 2, 3, 5})
      test::with_threads(threads, [&] {
        ASSERT_TRUE(test::same_bytes(loss(a, b, LossReduction::none), part(each, 0, n))) << threads << " threads";
        ASSERT_TRUE(test::same_bytes(loss(a, b, LossReduction::sum), sum)) << threads << " threads";
        ASSERT_TRUE(test::same_bytes(gradient(a, b), part(slopes, 0, n))) << threads << " threads";
      });
    if (n < 50) {
      ASSERT_TRUE(test::same_bytes(loss(part(x, n, n), part(t, n, n), LossReduction::none), part(each, n, n)));
    }
  }
}

TEST(Losses, DoNotDependOnThreadsAndPlaces) {
  const std::map<std::string, LossOf> losses{
      {"mse", [](auto& x, auto& t, auto r) { return mse_loss(x, t, r); }},
      {"l1", [](auto& x, auto& t, auto r) { return l1_loss(x, t, r); }},
      {"smooth_l1", [](auto& x, auto& t, auto r) { return smooth_l1_loss(x, t, 0.7, r); }},
      {"huber", [](auto& x, auto& t, auto r) { return huber_loss(x, t, 0.7, r); }},
      {"bce", [](auto& x, auto& t, auto r) { return binary_cross_entropy_with_logits(x, t, {.reduction = r}); }},
      {"kl", [](auto& x, auto& t, auto r) { return kl_div(x, t, {.reduction = r}); }},
      {"kl_of_log", [](auto& x, auto& t, auto r) { return kl_div(x, t, {.log_target = true, .reduction = r}); }}};
  const Tensor x = rand({91000}, -3, 3), t = rand({91000}, 0, 1);
  test::with_every_isa([&] {
    for (const auto& [name, loss] : losses) {
      SCOPED_TRACE(name);
      expect_same_everywhere(loss, x, t);
    }
  });
}

TEST(Losses, OfWhatIsNoNumber) {
  const Tensor nan = full({3}, NAN), zero = zeros({3});
  const auto slopes = [](auto loss, const Tensor& x, const Tensor& t) {
    const Tensor a = leaf(x), b = leaf(t);
    backward(loss(a, b));
    return std::pair(values(grad(a))[0], values(grad(b))[0]);
  };
  const auto huber = [](auto& x, auto& t) { return huber_loss(x, t, 2, LossReduction::sum); };
  const auto smooth = [](auto& x, auto& t) { return smooth_l1_loss(x, t, 2, LossReduction::sum); };
  for (const auto& [x, t] : {std::pair(nan, zero), std::pair(zero, nan)}) {
    EXPECT_TRUE(std::isnan(slopes(huber, x, t).first) && std::isnan(slopes(huber, x, t).second));
    EXPECT_TRUE(std::isnan(slopes(smooth, x, t).first) && std::isnan(slopes(smooth, x, t).second));
  }
  const auto bce = [](auto& x, auto& t) {
    return binary_cross_entropy_with_logits(x, t, {.reduction = LossReduction::sum});
  };
  EXPECT_EQ(slopes(bce, full({3}, -kInf), zero).second, kInf);
  EXPECT_EQ(slopes(bce, full({3}, kInf), ones({3})).second, -kInf);
}

TEST(Losses, OfOneElement) {
  const auto value = [](auto f, double x, double t) {
    return f(full({}, x, DType::f64), full({}, t, DType::f64)).item();
  };
  EXPECT_EQ(value([](auto a, auto b) { return smooth_l1_loss(a, b, 2); }, 1, 0), 0.25);
  EXPECT_EQ(value([](auto a, auto b) { return smooth_l1_loss(a, b, 2); }, 5, 0), 4);
  EXPECT_EQ(value([](auto a, auto b) { return smooth_l1_loss(a, b, 0); }, -3, 0), 3);
  EXPECT_EQ(value([](auto a, auto b) { return huber_loss(a, b, 2); }, 1, 0), 0.5);
  EXPECT_EQ(value([](auto a, auto b) { return huber_loss(a, b, 2); }, 5, 0), 8);
  EXPECT_EQ(value([](auto a, auto b) { return kl_div(a, b); }, -1, 0), 0);
  EXPECT_NEAR(value([](auto a, auto b) { return kl_div(a, b); }, -1, 0.5), 0.5 * (std::log(0.5) + 1), 1e-15);
}

TEST(Losses, OfLogitsKeepTheirDigits) {
  for (DType dtype : {DType::f32, DType::f64}) {
    const Tensor x = leaf(cast(numbers({-200, -20, -1e-3, 0, 3, 20, 200}, {7}), dtype)), one = ones({7}, dtype);
    const Tensor loss = binary_cross_entropy_with_logits(x, one, {.reduction = LossReduction::none});
    std::vector<double> want, slope;
    for (double v : values(x)) {
      want.push_back(std::log1p(std::exp(-std::fabs(v))) + std::max(-v, 0.0));
      slope.push_back(-1 / (1 + std::exp(v)));
    }
    expect_close(loss, cast(numbers(want, {7}), dtype), 1e-6, 0, "loss");
    backward(loss, one);
    expect_close(grad(x), cast(numbers(slope, {7}), dtype), 1e-6, 1e-7, "gradient");
  }
}

TEST(Losses, WeightsOfLogits) {
  const Tensor x = rand({3, 4}, -3, 3, DType::f64), t = rand({3, 4}, 0, 1, DType::f64);
  const Tensor w = rand({3, 1}, 0, 2, DType::f64), p = rand({4}, 0, 5, DType::f64);
  const Tensor want = -(w * (p * t * log(sigmoid(x)) + (1.0 - t) * log(1.0 - sigmoid(x))));
  const auto loss = [&](LossReduction r) {
    return binary_cross_entropy_with_logits(x, t, {.weight = w, .pos_weight = p, .reduction = r});
  };
  expect_close(loss(LossReduction::none), want, 1e-12, 1e-12, "none");
  expect_close(loss(LossReduction::mean), mean(want), 1e-12, 1e-12, "mean");
  expect_close(loss(LossReduction::sum), sum(want), 1e-12, 1e-12, "sum");
  expect_close(loss(LossReduction::batch_mean), sum(want) / 3, 1e-12, 1e-12, "batch_mean");
}

TEST(Losses, SayWhatDoesNotFit) {
  EXPECT_EQ(test::message_of<ShapeError>([] {
              mse_loss(ones({3, 1}), ones({3}));
            }),
            "mse_loss: expected x and a target of one shape, got (3, 1) and (3,); make them equal with "
            "expand(x, shape)");
  EXPECT_EQ(test::message_of<ShapeError>([] {
              binary_cross_entropy_with_logits(ones({3, 4}), ones({3, 4}), {.weight = ones({3})});
            }),
            "binary_cross_entropy_with_logits: a weight of shape (3,) does not broadcast to x (3, 4)");
}

}  // namespace
}  // namespace ringtape
