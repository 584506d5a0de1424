// Functions of images, prepared for many calls: what becomes part of what, and what cannot be prepared.
#include "autograd/prepared.h"

#include <cmath>

#include "autograd/create.h"
#include "autograd/inference/plan.h"
#include "autograd/inplace.h"
#include "autograd/ops.h"
#include "autograd/prepared_by_size.h"
#include "autograd/tape.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

using test::same_bytes;
using Function = std::function<Tensor(const Tensor&)>;

const Shape kImage{9, 7, 3};

Tensor images(int64_t n, const Shape& image = kImage) { return randn({n, image[0], image[1], image[2]}); }

// The layers that the functions below consist of.
struct Layers {
  Tensor w = randn({16, 3, 3, 3}, 0, 0.3), b = randn({16}), next = randn({16, 3, 3, 16}, 0, 0.1),
         point = randn({16, 1, 1, 3}), head = randn({5, 16}), head_b = randn({5});
  Tensor scale = rand({16}, 0.5, 2), shift = randn({16});
  RunningStatistics running{randn({16}), rand({16}, 0.5, 2), {}};
  RunningStatistics narrow{randn({5}), rand({5}, 0.5, 2), {}};

  Tensor conv(const Tensor& x) const { return conv2d(x, w, b, square_window(1, 1)); }
  Tensor norm(const Tensor& x, Activation f = Activation::none, const Tensor& residual = {}) const {
    return batch_norm(x, scale, shift, running, {.training = false}, f, residual);
  }
  Tensor rows(const Tensor& x) const { return linear(mean(x, {1, 2}), head, head_b); }
};

std::vector<std::string_view> calls_of(const Function& f) {
  std::optional<inference::Graph> graph = inference::trace(f, kImage, DType::f32);
  if (!graph) return {"nothing"};
  inference::fuse(*graph);
  std::vector<std::string_view> out;
  for (const inference::Call& call : graph->calls) out.push_back(call.name);
  return out;
}

void expect_prepared(const Function& f, const std::vector<std::string_view>& calls, const char* what) {
  EXPECT_EQ(calls_of(f), calls) << what;
  const auto prepared = Prepared::of(f, kImage);
  ASSERT_TRUE(prepared) << what;
  for (const int64_t n : {1, 3, 70}) {
    const NoGrad no_grad;
    const Tensor x = images(n), y = (*prepared)(x), want = f(x);
    const double largest = max(abs(want)).item();
    test::expect_close(y, want, 0, 1e-5 * largest, concat(what, " of ", n));
  }
}

TEST(Prepared, NormalisationsSumsAndReLUsBecomePartOfLayers) {
  const Layers l;
  const auto conv = [&l](const Tensor& x) { return l.conv(x); };
  const auto next = [&l](const Tensor& x) { return conv2d(x, l.next, {}, square_window(1, 1)); };
  const auto point = [&l](const Tensor& x) { return conv2d(x, l.point); };
  constexpr Activation kRelu = Activation::relu;
  expect_prepared([&](const Tensor& x) { return l.norm(conv(x)); }, {"conv2d"}, "a normalisation");
  expect_prepared([&](const Tensor& x) { return l.norm(conv(x), kRelu); }, {"conv2d"}, "and its ReLU");
  expect_prepared([&](const Tensor& x) { return relu(conv(x)); }, {"conv2d"}, "a ReLU");
  expect_prepared([&](const Tensor& x) { return relu(l.norm(conv(x))); }, {"conv2d"}, "a ReLU behind it");
  expect_prepared(
      [&](const Tensor& x) {
        const Tensor h = l.norm(conv(x), kRelu);
        return l.norm(next(h), kRelu, l.norm(point(x)));
      },
      {"conv2d", "conv2d", "conv2d"}, "a residual block");
  expect_prepared([&](const Tensor& x) { return relu(next(conv(x)) + point(x)); }, {"conv2d", "conv2d", "conv2d"},
                  "a sum before a ReLU");
  expect_prepared([&](const Tensor& x) { return point(x) + conv(x); }, {"conv2d", "conv2d"}, "a sum");
  expect_prepared(
      [&](const Tensor& x) {
        return relu(batch_norm(l.rows(l.conv(x)), ones({5}), zeros({5}), l.narrow, {.training = false}));
      },
      {"conv2d", "mean", "linear"}, "a linear layer");
  expect_prepared(
      [&](const Tensor& x) {
        return linear(mean(conv(x), {1, 2}), l.head, {}, kRelu);
      },
      {"conv2d", "mean", "linear"}, "a linear layer's own ReLU");
}

TEST(Prepared, WhatIsUsedTwiceStays) {
  const Layers l;
  expect_prepared(
      [&](const Tensor& x) {
        const Tensor h = l.conv(x);
        return l.norm(h) + h;
      },
      {"conv2d", "batch_norm", "add"}, "before a normalisation");
  expect_prepared(
      [&](const Tensor& x) {
        const Tensor h = l.conv(x);
        return relu(h) * h;
      },
      {"conv2d", "relu", "mul"}, "before a ReLU");
  expect_prepared([&](const Tensor& x) { return l.norm(relu(l.conv(x))); }, {"conv2d", "batch_norm"},
                  "a normalisation behind a ReLU");
  expect_prepared([&](const Tensor& x) { return l.conv(x) + l.shift; }, {"conv2d", "add"}, "a number per channel");
  expect_prepared(
      [&](const Tensor& x) {
        (void)l.norm(l.conv(x), Activation::relu);
        return l.conv(x) * 2.0;
      },
      {"conv2d", "mul"}, "what nothing needs is left out");
}

TEST(Prepared, OperationsRunWithoutTheTape) {
  const Layers l;
  const auto check = [](const char* what, const Function& f) {
    const auto prepared = Prepared::of(f, kImage);
    ASSERT_TRUE(prepared) << what;
    const NoGrad no_grad;
    const Tensor x = images(70);
    EXPECT_TRUE(same_bytes((*prepared)(x), contiguous(f(x)))) << what;
  };
  check("pool", [](const Tensor& x) { return max_pool2d(x, 3, 2, {2, 1, 1, 1, 1, 1}); });
  check("mean pool", [](const Tensor& x) { return avg_pool2d(x, 2, 2, square_window(2)); });
  check("pad", [](const Tensor& x) { return pad2d(x, 1, 2, 0, 3, -0.5); });
  check("views", [](const Tensor& x) { return reshape(permute(slice(x, 1, 2, 8, 2), {0, 3, 1, 2}), {-1, 63}) * 1.0; });
  check("copies", [](const Tensor& x) { return contiguous(permute(x, {0, 2, 1, 3})) + 1.0; });
  check("concat", [](const Tensor& x) { return concat({exp(x), x, slice(x, -1, 1, 2)}, -1); });
  check("numbers", [](const Tensor& x) { return leaky_relu(clamp(x, -1, 0.5) / 3.0, 0.2) - gelu(x); });
  check("reductions", [](const Tensor& x) { return max(x, {1}) + sum(x, {1}) - min(x, {1}, false); });
  check("softmax", [](const Tensor& x) { return softmax(flatten(x)); });
  check("the images", [](const Tensor& x) { return flatten(x); });
}

TEST(Prepared, IsNothingForWhatItWouldChange) {
  const Layers l;
  const auto refused = [](const char* what, const Function& f) { EXPECT_FALSE(Prepared::of(f, kImage)) << what; };
  refused("images that know each other", [](const Tensor& x) { return x - mean(x, {0}, true); });
  refused("statistics of the batch",
          [&](const Tensor& x) { return batch_norm(l.conv(x), l.scale, l.shift, {}, {.training = true}); });
  refused("a number that depends on the batch", [](const Tensor& x) { return x * double(x.dim(0)); });
  refused("a branch by the batch", [](const Tensor& x) { return x.dim(0) == 2 ? x * 2.0 : exp(x); });
  refused("numbers from the images", [](const Tensor& x) { return x * mean(x).item(); });
  refused("writes", [](const Tensor& x) {
    const Tensor y = x * 1.0;
    return mul_(y, 2);
  });
  refused("other operations", [](const Tensor& x) { return cumsum(x, 1); });
  refused("one result for all", [](const Tensor& x) { return sum(x); });
  refused("a constant", [](const Tensor&) { return ones({2, 3}); });
  refused("what is not finite", [](const Tensor& x) { return log(x); });
  refused("f64", [&](const Tensor& x) { return conv2d(cast(x, DType::f64), cast(l.w, DType::f64)); });
}

TEST(Prepared, ForAnySizeFallsBackOnTheFunction) {
  const Layers l;
  const PreparedBySize layers([&](const Tensor&x) { return l.norm(l.conv(x)); }),
      scan([](const Tensor&x) { return cumsum(x, 1); });
  const NoGrad no_grad;
  for (int64_t side = 5; side < 16; ++side) {  // more sizes than are kept
    const Tensor x = images(2, {side, side + 1, 3});
    test::expect_close(layers(x), l.norm(l.conv(x)), 1e-5, 1e-4, concat(side));
    EXPECT_TRUE(same_bytes(scan(x), cumsum(x, 1))) << side;
  }
}

// Results that are not needed at the same time lie in the same place.
TEST(Prepared, PlansItsMemory) {
  const Layers l;
  const Function f = [&](const Tensor& x) {
    Tensor y = l.conv(x);
    for (int i = 0; i < 20; ++i) y = gelu(conv2d(y, l.next, {}, square_window(1, 1)));
    return l.rows(y);
  };
  std::optional<inference::Graph> graph = inference::trace(f, kImage, DType::f32);
  ASSERT_TRUE(graph);
  std::vector<inference::Step> steps;
  for (const inference::Call& call : graph->calls) steps.push_back(*inference::step_of(*graph, call));
  const int64_t one = 9 * 7 * 16 * int64_t(sizeof(float));
  for (const int64_t n : {1, 2, 10}) {
    const int64_t bytes = inference::Plan(*graph, steps, n).bytes();
    EXPECT_GE(bytes, 2 * n * one);
    EXPECT_LT(bytes, 2 * n * one + 64 * 8) << n;
  }
}

TEST(Prepared, AsksTheSystemForNoMemoryAndDrawsNoNumbers) {
  const Layers l;
  manual_seed(7);
  const Tensor first = rand({3});
  manual_seed(7);
  const auto prepared = Prepared::of([&](const Tensor& x) { return l.rows(l.norm(l.conv(x))); }, kImage);
  EXPECT_TRUE(same_bytes(rand({3}), first));
  const Tensor x = images(100);
  (void)(*prepared)(x);
  const MemoryStats before = memory_stats(Device{});
  for (int i = 0; i < 20; ++i) (void)(*prepared)(x);
  const MemoryStats after = memory_stats(Device{});
  EXPECT_EQ(after.system_allocations, before.system_allocations);
  EXPECT_EQ(after.current, before.current);
  EXPECT_FALSE((*prepared)(x).node());
  EXPECT_EQ((*prepared)(images(0)).shape(), (Shape{0, 5}));
  EXPECT_MENTIONS(test::message_of<ShapeError>([&] {
                    (void)(*prepared)(images(1, {7, 9, 3}));
                  }),
                  "expected contiguous images of (9, 7, 3), got (1, 7, 9, 3)");
}

}  // namespace
}  // namespace ringtape
