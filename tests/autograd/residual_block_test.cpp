// A residual block as one op is the ops one by one: the same bytes of values, gradients and running statistics.
#include "autograd/autocast.h"
#include "autograd/checkpoint.h"
#include "autograd/create.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "tests/support/noise.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

using test::noise;

const BatchNormOptions kOptions{.momentum = 0.25, .eps = 1e-3};

Tensor block(const Tensor& x, const ConvNorm& first, const ConvNorm& second, const ConvNorm& shortcut, int64_t stride) {
  return residual_block(x, first, second, shortcut, stride, kOptions);
}
Tensor one_by_one(const Tensor& x, const ConvNorm& first, const ConvNorm& second, const ConvNorm& shortcut,
                  int64_t stride) {
  const auto layer = [](const Tensor& from, const ConvNorm& c, int64_t step, Activation f, const Tensor& added) {
    const Tensor y = conv2d(from, c.w, {}, square_window(step, c.w.dim(1) / 2));
    return batch_norm(y, c.scale, c.shift, c.running, kOptions, f, added);
  };
  const Tensor h = layer(x, first, stride, Activation::relu, {});
  return layer(h, second, 1, Activation::relu,
               shortcut.w.defined() ? layer(x, shortcut, stride, Activation::none, {}) : x);
}

struct Use {
  bool projects = false;
  int64_t stride = 1;
  DType dtype = DType::f32;     // of the weights, and of x without Autocast
  DType autocast = DType::f32;  // f32: none
  unsigned frozen = 0;          // a bit for each convolution whose weights are
  bool transposed = false;      // the gradient of y in memory
  bool checkpointed = false;
  int64_t images = 3;
};

// Twice forward and backward; everything that came out, and the leaves' gradients.
std::vector<Tensor> train(const Use& use,
                          Tensor (*f)(const Tensor&, const ConvNorm&, const ConvNorm&, const ConvNorm&, int64_t)) {
  constexpr int64_t c = 16;
  const int64_t k = use.projects ? 24 : c;
  uint64_t seed = 0;
  Tensors leaves;
  const auto parameter = [&](const Shape& shape, DType dtype, double mean, double deviation, bool frozen = false) {
    const Tensor t = cast(noise(shape, ++seed, mean, deviation), dtype);
    return frozen ? t : leaves.emplace_back(leaf(t));
  };
  const DType wide = use.dtype == DType::f64 ? DType::f64 : DType::f32;
  const auto layer = [&](int64_t in, int64_t kernel, unsigned number) {
    const bool frozen = use.frozen >> number & 1;
    const Tensor w = parameter({k, kernel, kernel, in}, use.dtype, 0, 0.1, frozen);
    return ConvNorm{w,
                    parameter({k}, wide, 1, 0.1),
                    parameter({k}, wide, 0, 0.1),
                    {zeros({k}, wide), ones({k}, wide), zeros({}, DType::i64)}};
  };
  const ConvNorm first = layer(c, 3, 0), second = layer(k, 3, 1), shortcut = use.projects ? layer(c, 1, 2) : ConvNorm{};
  const Tensor x = parameter({use.images, 7, 6, c}, use.autocast == DType::f32 ? use.dtype : use.autocast, 0, 1);
  Tensors out;
  for (int step = 0; step < 2; ++step) {
    const Autocast cast_to(use.autocast);
    const auto section = [&](const Tensors& in) { return f(in[0], first, second, shortcut, use.stride); };
    const Tensor y = use.checkpointed ? checkpoint(section, {x}) : section({x});
    const Tensor dy = cast(noise(y.shape(), 99), y.dtype());
    backward(y, use.transposed ? transpose(contiguous(transpose(dy))) : dy);
    out.push_back(y);
  }
  for (const Tensor& t : leaves) out.push_back(grad(t));
  for (const ConvNorm* l : {&first, &second, &shortcut})
    if (l->w.defined()) out.insert(out.end(), {l->running.mean, l->running.var, l->running.batches});
  return out;
}

TEST(ResidualBlock, IsItsOpsOneByOne) {
  const Use uses[] = {{},
                      {.projects = true, .stride = 2},
                      {.projects = true},
                      {.dtype = DType::f64},
                      {.dtype = DType::bf16},
                      {.projects = true, .stride = 2, .dtype = DType::f16},
                      {.autocast = DType::bf16},
                      {.autocast = DType::bf16, .images = 17},
                      {.projects = true, .stride = 2, .autocast = DType::f16},
                      {.frozen = 1},
                      {.projects = true, .frozen = 2},
                      {.projects = true, .frozen = 4},
                      {.transposed = true},
                      {.projects = true, .stride = 2, .checkpointed = true},
                      {.autocast = DType::bf16, .frozen = 1, .checkpointed = true}};
  for (const Use& use : uses) {
    SCOPED_TRACE(concat("projects ", use.projects, ", stride ", use.stride, ", ", use.dtype, ", autocast ",
                        use.autocast, ", frozen ", use.frozen, ", ", use.images, " images",
                        use.transposed ? ", transposed" : "", use.checkpointed ? ", checkpointed" : ""));
    const std::vector<Tensor> got = train(use, block), want = train(use, one_by_one);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(test::same_bytes(got[i], want[i])) << "number " << i;
  }
}

// What does not fit is refused before anything is written.
TEST(ResidualBlock, AnErrorLeavesRunningStatisticsAlone) {
  const auto layer = [](const Shape& w) {
    const int64_t k = w[0];
    return ConvNorm{ones(w), ones({k}), zeros({k}), {zeros({k}), ones({k}), zeros({}, DType::i64)}};
  };
  const ConvNorm first = layer({4, 3, 3, 4}), second = layer({4, 3, 3, 4}), wrong = layer({5, 3, 3, 6});
  const Tensor x = ones({2, 4, 4, 4});
  EXPECT_THROW(residual_block(x, first, wrong, {}, 1), ShapeError);
  EXPECT_THROW(residual_block(x, first, second, {}, 2), ShapeError);
  EXPECT_THROW(residual_block(x, first, second, wrong, 1), ShapeError);
  ConvNorm partly = first;
  partly.running.var = {};
  EXPECT_THROW(residual_block(x, partly, second, {}, 1), ShapeError);
  EXPECT_EQ(first.running.batches.item(), 0);
  EXPECT_EQ(test::values(first.running.mean), std::vector<double>(4, 0));
}

TEST(ResidualBlock, KeepsLessForBackward) {
  const auto kept = [](auto f) {
    const Tensor x = leaf(cast(noise({8, 16, 16, 16}, 1), DType::f32));
    const auto layer = [](uint64_t seed) {
      return ConvNorm{leaf(cast(noise({16, 3, 3, 16}, seed), DType::f32)), ones({16}), zeros({16})};
    };
    const ConvNorm first = layer(2), second = layer(3);
    const auto before = memory_stats({}).current;
    const Tensor y = f(x, first, second, ConvNorm{}, 1);
    return memory_stats({}).current - before;
  };
  const size_t image = 8 * 16 * 16 * 16 * sizeof(float);
  EXPECT_LE(kept(block) + image * 9 / 10, kept(one_by_one));
}

}  // namespace
}  // namespace ringtape
