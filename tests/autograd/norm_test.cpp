// Normalisation of layers, groups and instances beside plain formulas in double, where the ops' samples do not reach.
#include <cmath>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "nn/nn.h"
#include "tests/support/isas.h"
#include "tests/support/noise.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

using test::expect_close;
using test::noise;
using test::values;

// x normalised over `axes`, without parameters, from ops.
Tensor plain(const Tensor& x, const Axes& axes, double eps = 1e-5) {
  return (x - mean(x, axes, true)) / sqrt(var(x, axes, true, 0) + eps);
}

TEST(LayerNorm, KeepsItsDigitsAroundALargeMean) {
  test::with_every_isa([] {
    for (double offset : {0.0, 1e3, 1e5, -1e6}) {
      SCOPED_TRACE(offset);
      const Tensor x = leaf(cast(noise({7, 300}, 1, offset, offset == 0 ? 1 : 20), DType::f32)), y = layer_norm(x);
      const Tensor exact = leaf(cast(x.detach(), DType::f64)), want = plain(exact, {-1});
      expect_close(y, cast(want, DType::f32), 4e-6, 4e-6, "value");
      const Tensor dy = noise({7, 300}, 2);
      backward(y, cast(dy, DType::f32)), backward(want, dy);
      expect_close(grad(x), cast(grad(exact), DType::f32), 1e-5, 1e-6, "gradient");
    }
  });
}

TEST(Norms, EqualNumbersHaveNoVariance) {
  test::with_every_isa([] {
    for (double value : {0.1, 1e8, -3e30})
      for (DType dtype : {DType::f32, DType::bf16}) {
        const Tensor x = full({3, 5, 7, 18}, value, dtype);
        for (const Tensor& y : {layer_norm(x), group_norm(x, 3), group_norm(x, 1), instance_norm(x)})
          for (double v : values(y)) ASSERT_EQ(v, 0.0) << value << ' ' << name_of(dtype);
      }
  });
}

TEST(Norms, OfLargeSamplesAndManyUnits) {
  // 17 channels: a row of the kernels has 16 times as many; each sample has several units and a rest.
  const Tensor x = leaf(noise({2, 97, 83, 17}, 3, 5, 2)), w = leaf(noise({17}, 4)), b = leaf(noise({17}, 5));
  const auto run = [&](const Tensor& y) {
    for (const Tensor& t : {x, w, b}) zero_grad(t);
    backward(y, noise(y.shape(), 6));
    return Tensors{y.detach(), grad(x), grad(w), grad(b)};
  };
  const Tensors want = run(plain(x, {1, 2}) * w + b);
  for (int threads : {1, 2, 3}) {
    const Tensors got = test::with_threads(threads, [&] { return run(instance_norm(x, w, b)); });
    for (size_t i = 0; i < got.size(); ++i) expect_close(got[i], want[i], 1e-9, 1e-9, concat("result ", i));
  }
  const Tensors whole = run(reshape(plain(reshape(x, {2, -1}), {1}), x.shape()) * w + b);
  const Tensors got = run(group_norm(x, 1, w, b));
  for (size_t i = 0; i < got.size(); ++i) expect_close(got[i], whole[i], 1e-9, 1e-9, concat("one group, result ", i));
}

TEST(GroupNorm, GroupsAreNeighbouringChannels) {
  const Tensor x = noise({2, 3, 4, 6}, 7, 1, 3);
  const Tensor y = group_norm(x, 2), halves = reshape(x, {2, 12, 2, 3});
  expect_close(y, reshape(plain(halves, {1, 3}), x.shape()), 1e-12, 1e-12, "two groups");
  expect_close(group_norm(x, 6), instance_norm(x), 0, 0, "as many groups as channels");
}

TEST(RmsNorm, HasNoCentre) {
  const Tensor x = noise({3, 5}, 8, 2);
  expect_close(rms_norm(x, {}, 0.5), x / sqrt(mean(square(x), {-1}, true) + 0.5), 1e-12, 1e-12, "rms_norm");
}

TEST(Norms, AnEmptyBatchHasGradientsOfZero) {
  const Tensor w = leaf(ones({4})), b = leaf(ones({4}));
  for (const Tensor& y : {layer_norm(zeros({0, 4}), w, b), group_norm(zeros({0, 3, 4}), 2, w, b)}) {
    zero_grad(w), zero_grad(b);
    backward(y, zeros(y.shape()));
    expect_close(grad(w), zeros({4}), 0, 0, "dw");
    expect_close(grad(b), zeros({4}), 0, 0, "db");
  }
}

TEST(Norms, SayWhatDoesNotFit) {
  EXPECT_EQ(test::message_of<ShapeError>([] {
              layer_norm(ones({2, 5}), ones({4}));
            }),
            "layer_norm: expected w of shape (5,) for x (2, 5), got (4,)");
  EXPECT_EQ(test::message_of<DTypeError>([] {
              layer_norm(ones({2, 5}, DType::bf16), ones({5}, DType::bf16));
            }),
            "layer_norm: x and w of bf16 and bf16; w must be f32: convert it with cast(x, dtype)");
  EXPECT_EQ(test::message_of<ShapeError>([] {
              group_norm(ones({2, 5}), 2);
            }),
            "group_norm: 5 channels of x (2, 5) cannot be divided into 2 groups");
  EXPECT_EQ(test::message_of<ShapeError>([] {
              nn::GroupNorm(2, 4, {.affine = false})(ones({2, 6}));
            }),
            "GroupNorm: expected x (N, ..., 4), got (2, 6)");
}

std::vector<std::string> names_of(nn::Module& module) {
  std::vector<std::string> out;
  for (const nn::Named& p : nn::named_parameters(module)) out.push_back(p.name);
  return out;
}

TEST(NormModules, HavePyTorchsParameters) {
  using Names = std::vector<std::string>;
  nn::LayerNorm layer({3, 5}), unbiased({5}, {.bias = false}), bare({3, 5}, {.affine = false});
  nn::RMSNorm rms({5});
  nn::GroupNorm group(2, 4);
  nn::InstanceNorm2d instance(4), affine(4, {.affine = true});
  EXPECT_EQ(names_of(layer), (Names{"weight", "bias"}));
  EXPECT_EQ(layer.weight.shape(), Shape({3, 5}));
  EXPECT_EQ(names_of(unbiased), Names{"weight"});
  EXPECT_EQ(names_of(rms), Names{"weight"});
  EXPECT_EQ(names_of(group), (Names{"weight", "bias"}));
  EXPECT_EQ(names_of(instance), Names{});
  EXPECT_EQ(names_of(affine), (Names{"weight", "bias"}));
  const Tensor x = rand({2, 3, 5}), images = rand({2, 3, 3, 4});
  expect_close(layer(x), bare(x), 0, 0, "with a weight of 1 and a bias of 0");
  expect_close(rms(x), rms_norm(x), 0, 0, "RMSNorm");
  expect_close(group(images), group_norm(images, 2), 0, 0, "GroupNorm");
  expect_close(instance(images), affine(images), 0, 0, "InstanceNorm2d");
  nn::cast_to(layer, DType::bf16);
  EXPECT_EQ(layer(cast(x, DType::bf16)).dtype(), DType::bf16);
  EXPECT_EQ(layer.str(), "LayerNorm(3, 5)");
  EXPECT_EQ(rms.str(), "RMSNorm(5)");
  EXPECT_EQ(test::message_of<ShapeError>([&] { bare(images); }),
            "LayerNorm: expected x with the trailing axes (3, 5), got (2, 3, 3, 4)");
  EXPECT_EQ(test::message_of<ShapeError>([&] { instance(x); }),
            "InstanceNorm2d: expected images (N, H, W, 4), got (2, 3, 5)");
}

}  // namespace
}  // namespace ringtape
