// Batch normalisation compared with PyTorch's numbers (tests/fixtures/make_images.py), and what
// the op's samples are too small to reach.
#include "kernels/batch_norm.h"

#include <cmath>

#include "autograd/checkpoint.h"
#include "autograd/create.h"
#include "nn/nn.h"
#include "tests/support/isas.h"
#include "tests/support/noise.h"
#include "tests/support/support.h"
#include "train/io/safetensors.h"

namespace ringtape {
namespace {

using test::expect_close;
using test::noise;
using test::values;

struct Case {
  std::string name;
  int64_t channels;
  Activation f = Activation::none;
  bool residual = false;
  double momentum = 0.1, eps = 1e-5;
};

// Five training steps and an evaluation: values, gradients and running statistics.
void follow(const Case& c, DType dtype, double tolerance) {
  SCOPED_TRACE(c.name);
  const Safetensors file =
      read_safetensors(std::string(RINGTAPE_SOURCE_DIR) + "/tests/fixtures/batch_norm.safetensors");
  const auto at = [&](const std::string& name) { return cast(file[c.name + "/" + name], dtype); };
  nn::BatchNorm layer(c.channels, {c.momentum, c.eps});
  nn::cast_to(layer, dtype);
  layer.weight = leaf(at("weight"));
  layer.bias = leaf(at("bias"));
  for (const std::string step : {"0", "1", "2", "3", "4", "eval"}) {
    SCOPED_TRACE("step " + step);
    const auto expected = [&](const std::string& name) { return at(step + "/" + name); };
    layer.train(step != "eval");
    const Tensor x = leaf(expected("x")), z = c.residual ? leaf(expected("residual")) : Tensor{};
    const Tensor y = layer.forward(x, c.f, z);
    zero_grad(layer.weight), zero_grad(layer.bias);
    backward(y, expected("dy"));
    const auto check = [&](const Tensor& got, const std::string& name) {
      expect_close(got, expected(name), tolerance, tolerance, name);
    };
    check(y, "y"), check(grad(x), "dx"), check(grad(layer.weight), "dweight"), check(grad(layer.bias), "dbias");
    check(layer.running().mean, "running_mean"), check(layer.running().var, "running_var");
    if (c.residual) check(grad(z), "dresidual");
  }
  EXPECT_EQ(layer.running().batches.item(), 5);
}

const Case kCases[] = {{"rows", 5},
                       {"images", 4},
                       {"relu", 3, Activation::relu, false, 0.3, 1e-3},
                       {"add_relu", 17, Activation::relu, true}};

TEST(BatchNorm, FollowsPyTorchInDouble) {
  for (const Case& c : kCases) follow(c, DType::f64, 1e-12);
}
TEST(BatchNorm, FollowsPyTorchInFloat) {
  for (const Case& c : kCases) follow(c, DType::f32, 4e-6);
}

// Sizes on both sides of vectors, of rows that are put together and of the chunks that threads take.
TEST(BatchNorm, EqualsItsFormulasAtEverySize) {
  test::with_every_isa([&] {
    for (const Shape& shape :
         {Shape{5000, 16}, {4099, 17}, {130001, 1}, {33, 2050}, {1000, 64}, {257, 24}, {40000, 3}}) {
      const int64_t m = shape[0], c = shape[1];
      SCOPED_TRACE(concat(m, " x ", c));
      const Tensor x64 = noise({m, c}, 1, 3, 2), w64 = noise({c}, 2), b64 = noise({c}, 3), z64 = noise({m, c}, 4),
                   dy = noise({m, c}, 5);
      const auto in_float = [](const Tensor& t) { return leaf(cast(t, DType::f32)); };
      const Tensor x = in_float(x64), w = in_float(w64), b = in_float(b64), z = in_float(z64);
      backward(batch_norm(x, w, b, {}, {}, Activation::relu, z), cast(dy, DType::f32));
      const auto exact = [](const Tensor& t) { return leaf(cast(t.detach(), DType::f64)); };
      const Tensor xd = exact(x), wd = exact(w), bd = exact(b), zd = exact(z);
      const Tensor center = xd - mean(xd, {0}, true);
      const Tensor y = relu(center / sqrt(mean(square(center), {0}, true) + 1e-5) * wd + bd + zd);
      backward(y, cast(cast(dy, DType::f32), DType::f64));
      expect_close(batch_norm(x, w, b, {}, {}, Activation::relu, z), y, 2e-5, 2e-5, "y");
      // An element whose sign rounding decides may be on either side of the kink: none is, with these numbers.
      expect_close(grad(z), grad(zd), 1e-6, 1e-6, "dresidual");
      expect_close(grad(x), grad(xd), 1e-4, 2e-5, "dx");
      expect_close(grad(b), grad(bd), 1e-5, 1e-3, "db");
      expect_close(grad(w), grad(wd), 1e-5, 2e-3, "dw");
    }
  });
}

TEST(BatchNorm, ResultsDoNotDependOnTheThreads) {
  const Tensor x = cast(noise({9001, 24}, 1), DType::f32), dy = cast(noise({9001, 24}, 2), DType::f32);
  const auto run = [&](int threads) {
    return test::with_threads(threads, [&] {
      const Tensor in = leaf(x), w = leaf(ones({24})), b = leaf(zeros({24})),
                   y = batch_norm(in, w, b, {}, {}, Activation::relu);
      backward(y, dy);
      return Tensors{y.detach(), grad(in), grad(w), grad(b)};
    });
  };
  const Tensors one = run(1);
  for (int threads : {2, 3, 5}) {
    const Tensors many = run(threads);
    for (size_t i = 0; i < one.size(); ++i)
      EXPECT_TRUE(test::same_bytes(one[i], many[i])) << i << " with " << threads << " threads";
  }
}

// Every bf16 there is, in rows that fill vectors and in others: vectors round and select as numbers one by one.
TEST(BatchNorm, SixteenBitsAreThoseOfOneNumber) {
  test::with_every_isa([] {
    for (const int64_t channels : {64, 48, 5}) {
      SCOPED_TRACE(channels);
      const int64_t rows = 65536 / channels + 1, n = rows * channels;
      const Tensor x({rows, channels}, DType::bf16), residual = empty_like(x), y = empty_like(x), dy = empty_like(x),
                                                     dx = empty_like(x), dresidual = empty_like(x);
      const Tensor mask({batch_norm_mask_bytes(n)}, DType::u8);
      const Tensor zeros = full({channels}, 0.0), ones = full({channels}, 1.0), minus = full({channels}, -0.0);
      const auto at = [](const Tensor& t, int64_t i) -> uint16_t& { return t.data<bf16>()[i].bits; };
      const auto value = [](const Tensor& t, int64_t i) { return float(t.data<bf16>()[i]); };
      for (int64_t i = 0; i < n; ++i) {
        at(x, i) = uint16_t(i);
        at(residual, i) = uint16_t(i * 40503);
        at(dy, i) = uint16_t(i * 25173 + 13849);
        if (std::isnan(value(x, i)) && std::isnan(value(residual, i))) at(residual, i) = 0;
        if (std::isnan(value(dy, i))) at(dy, i) = 0x8000;
      }
      batch_norm_forward(y, mask, x, residual, zeros, ones, ones, minus, 0, Activation::relu);
      batch_norm_backward(dx, dresidual, dy, mask, x, zeros, ones, ones, View{}, View{}, rows, 0);
      for (int64_t i = 0; i < n; ++i) {
        const float sum = value(x, i) + value(residual, i);
        const bool above = mask.data<uint8_t>()[i / 8] >> (i % 8) & 1;
        ASSERT_EQ(above, sum > 0) << i;
        ASSERT_EQ(at(y, i), sum < 0 ? 0 : bf16(sum).bits) << i;
        ASSERT_EQ(at(dresidual, i), above ? at(dy, i) : 0) << i;
        if (above && std::isfinite(value(x, i))) {
          ASSERT_EQ(value(dx, i), value(dy, i)) << i;
        }
      }
    }
  });
}

// A mean that is large compared with the deviation: sums of squares would cancel.
TEST(BatchNorm, StatisticsKeepTheirDigitsFarFromZero) {
  const Tensor x = cast(noise({20000, 5}, 1, 10000, 1), DType::f32), exact = cast(x, DType::f64);
  Tensor mean_of({5}), var_of({5});
  batch_norm_statistics(mean_of, var_of, x, {});
  expect_close(mean_of, mean(exact, {0}), 1e-7, 0, "mean");
  expect_close(var_of, var(exact, {0}, false, 0), 1e-4, 0, "var");
  batch_norm_statistics(mean_of, var_of, full({1003, 5}, 0.1), {});
  EXPECT_EQ(values(mean_of), values(full({5}, 0.1)));
  EXPECT_EQ(values(var_of), values(zeros({5})));
}

TEST(BatchNorm, KeepsStatisticsInFloatForSixteenBits) {
  nn::BatchNorm layer(3);
  nn::cast_to(layer, DType::bf16);
  const Tensor x = leaf(cast(noise({64, 3}, 1), DType::bf16));
  const Tensor y = layer(x);
  EXPECT_EQ(y.dtype(), DType::bf16);
  backward(y, full({64, 3}, 1, DType::bf16));
  EXPECT_EQ(grad(layer.weight).dtype(), DType::bf16);
  EXPECT_EQ(layer.running().mean.dtype(), DType::f32);
  EXPECT_EQ(values(batch_norm(x, layer.weight, layer.bias, {})), values(y));
  EXPECT_NE(test::message_of<DTypeError>([&] { batch_norm(x, ones({3}, DType::f64), {}, {}); }).find("f64"),
            std::string::npos);
}

TEST(BatchNorm, SaysWhatItNeeds) {
  nn::BatchNorm layer(3);
  EXPECT_EQ(test::message_of<ShapeError>([&] {
              layer(ones({1, 3}));
            }),
            "batch_norm: expected more than 1 value per channel when training, got x (1, 3)");
  EXPECT_NE(test::message_of<ShapeError>([&] { layer(ones({4, 2})); }).find("(3,)"), std::string::npos);
  const auto without_statistics = [&] { batch_norm(ones({4, 3}), layer.weight, layer.bias, {}, {.training = false}); };
  EXPECT_NE(test::message_of<ShapeError>(without_statistics).find("running mean"), std::string::npos);
  layer.train(false);
  expect_close(layer(ones({1, 3})), full({1, 3}, 1 / std::sqrt(1 + 1e-5)), 1e-6, 0, "one row in evaluation");
}

TEST(BatchNorm, NamesItsBuffersAsPyTorchDoes) {
  nn::BatchNorm layer(3);
  std::vector<std::string> names;
  for (const nn::Named& p : nn::named_parameters(layer)) names.push_back(p.name);
  for (const nn::Named& b : nn::named_buffers(layer)) names.push_back(b.name);
  EXPECT_EQ(names, (std::vector<std::string>{"weight", "bias", "running_mean", "running_var", "num_batches_tracked"}));
  nn::move_to(layer, Device{DeviceType::cpu, 1});
  EXPECT_EQ(layer.running().batches.device().index, 1);
}

// A split layer is as many plain ones, each on its part of the batch, whose running statistics' mean it keeps.
TEST(BatchNorm, SplitIsALayerOnEachPart) {
  for (const bool images : {false, true}) {
    const Shape shape = images ? Shape{6, 3, 3, 5} : Shape{6, 5};
    nn::BatchNorm whole(5, {0.3});
    nn::cast_to(whole, DType::f64);
    whole.split(3);
    std::vector<std::unique_ptr<nn::BatchNorm>> layers;
    for (int i = 0; i < 3; ++i) {
      layers.push_back(std::make_unique<nn::BatchNorm>(5, nn::BatchNorm::Options{0.3}));
      nn::cast_to(*layers.back(), DType::f64);
    }
    for (uint64_t step = 0; step < 2; ++step) {
      const Tensor x = noise(shape, step), z = noise(shape, step + 10), dy = noise(shape, step + 20), at = leaf(x),
                   residual = leaf(z);
      const Tensor y = whole(at, Activation::relu, residual);
      zero_grad(whole.weight);
      backward(y, dy);
      Tensor dw = zeros({5}, DType::f64), mean_of = dw, var_of = dw;
      for (int64_t i = 0; i < 3; ++i) {
        nn::BatchNorm& layer = *layers[size_t(i)];
        const auto part = [i](const Tensor& t) { return contiguous(slice(t, 0, 2 * i, 2 * i + 2)); };
        const Tensor own = leaf(part(x)), own_residual = leaf(part(z)),
                     own_y = layer(own, Activation::relu, own_residual);
        zero_grad(layer.weight);
        backward(own_y, part(dy));
        EXPECT_TRUE(test::same_bytes(part(y), own_y.detach()) && test::same_bytes(part(grad(at)), grad(own)));
        EXPECT_TRUE(test::same_bytes(part(grad(residual)), grad(own_residual)));
        dw = dw + grad(layer.weight), mean_of = mean_of + layer.running().mean / 3,
        var_of = var_of + layer.running().var / 3;
      }
      expect_close(grad(whole.weight), dw, 1e-13, 1e-13, "dw");
      expect_close(whole.running().mean, mean_of, 1e-13, 1e-13, "running mean");
      expect_close(whole.running().var, var_of, 1e-13, 1e-13, "running variance");
      EXPECT_EQ(whole.running().batches.item(), double(step + 1));
    }
    EXPECT_EQ(test::message_of<ShapeError>([&] {
                whole(noise({7, 5}, 1));
              }),
              "batch_norm: expected a batch of 3 equal parts, got x (7, 5)");
    EXPECT_EQ(test::message_of<ShapeError>([&] {
                whole(noise({3, 5}, 1));
              }),
              "batch_norm: expected more than 1 value per channel when training, got x (3, 5) in 3 parts");
    whole.train(false);
    EXPECT_EQ(whole(noise({7, 5}, 1)).shape(), Shape({7, 5}));
  }
  nn::FashionCnn net(8, 8, 1, 2);
  EXPECT_EQ(nn::split_batch_norm(net, 2), 2);
  EXPECT_EQ(nn::synchronize_batch_norm(net, nullptr), 2);
  nn::BatchNorm itself(3);
  EXPECT_EQ(nn::split_batch_norm(itself, 2), 1);
  EXPECT_NE(test::message_of<UsageError>([&] { itself.split(0); }).find("0 parts"), std::string::npos);
}

// As windows on memory that holds other numbers too, and as one number for all channels.
TEST(BatchNorm, KeptStatisticsMayLieInAnyLayout) {
  const BatchNormOptions infer{.training = false};
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor x = cast(noise({4, 3, 5}, 1), dtype), w = cast(noise({5}, 2), dtype), b = cast(noise({5}, 3), dtype);
    const Tensor memory = square(cast(noise({12}, 4), dtype)) + 0.5;
    for (const int64_t stride : {2, 0}) {
      const Tensor mean = memory.window({5}, {stride}, 1), var = memory.window({5}, {stride}, 2);
      Tensors values_of[2];
      for (const bool dense : {true, false}) {
        const Tensor at = leaf(x), weight = leaf(w);
        const Tensor y =
            batch_norm(at, weight, b, {dense ? contiguous(mean) : mean, dense ? contiguous(var) : var, {}}, infer);
        backward(sum(square(y)));
        values_of[dense] = {y, grad(at), grad(weight)};
      }
      for (size_t i = 0; i < 3; ++i)
        EXPECT_EQ(values(values_of[0][i]), values(values_of[1][i])) << name_of(dtype) << ", stride " << stride;
      const Tensor wanted = (x - mean) / sqrt(var + infer.eps) * w + b;
      expect_close(values_of[0][0], wanted, 1e-5, 1e-5, "y");
    }
  }
}

// A checkpointed section is called twice; its batch is counted once.
TEST(BatchNorm, CountsACheckpointedBatchOnce) {
  nn::BatchNorm layer(3), plain(3);
  const Tensor x = cast(noise({16, 3}, 1), DType::f32), a = leaf(x), b = leaf(x);
  backward(sum(square(checkpoint([&](const Tensors& t) { return layer.forward(t[0], Activation::relu); }, {a}))));
  backward(sum(square(plain.forward(b, Activation::relu))));
  EXPECT_EQ(layer.running().batches.item(), 1);
  EXPECT_EQ(values(layer.running().mean), values(plain.running().mean));
  EXPECT_EQ(values(grad(a)), values(grad(b)));
}

TEST(BatchNorm, WithoutFactorsTheyAreOneAndZero) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor x = randn({16, 5}, 1, 2, dtype), w = ones({5}), b = zeros({5});
    const std::vector<double> want = test::values(batch_norm(x, w, b, {}));
    EXPECT_EQ(test::values(batch_norm(x, {}, {}, {})), want);
    EXPECT_EQ(test::values(batch_norm(x, cast(w, DType::bf16), {}, {})), want);
  }
}

}  // namespace
}  // namespace ringtape
