// Results that are computed again in the backward pass instead of being kept: of activations and layer_norm.
#include <functional>

#include "autograd/checkpoint.h"
#include "autograd/create.h"
#include "autograd/inplace.h"
#include "autograd/ops.h"
#include "autograd/saved.h"
#include "autograd/tape.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

using test::message_of;
using test::same_bytes;

constexpr int64_t kRows = 64, kHidden = 1024, kBytes = kRows * kHidden * 4;

struct Branch {  // of a transformer
  Tensor x = leaf(randn({4, kRows / 4, 32})), gain = leaf(rand({32}) + 0.5), shift = leaf(randn({32}));
  Tensor up = leaf(randn({kHidden, 32})), down = leaf(randn({32, kHidden}));

  Tensor forward(const std::function<Tensor(const Tensor&)>& keep) const {
    const Tensor h = linear(keep(layer_norm(x, gain, shift)), up);
    return linear(keep(gelu(h)), down);
  }
  Tensors gradients(const std::function<Tensor(const Tensor&)>& keep = [](const Tensor& t) { return t; }) const {
    backward(sum(square(forward(keep))));
    Tensors out;
    for (const Tensor& t : {x, gain, shift, up, down}) out.push_back(grad(t).detach()), zero_grad(t);
    return out;
  }
};

TEST(Recomputed, GradientsAreThoseOfKeptResultsBitForBit) {
  const Branch branch;
  const Tensors got = branch.gradients();
  const Tensors want = branch.gradients([](const Tensor& t) { return t * 1.0; });  // a result that is kept
  const Tensors checkpointed =
      branch.gradients([](const Tensor& t) { return checkpoint([](const Tensors& in) { return silu(in[0]); }, {t}); });
  for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same_bytes(got[i], want[i])) << i;
  const Tensors kept = branch.gradients([](const Tensor& t) { return silu(t * 1.0) * 1.0; });
  for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same_bytes(checkpointed[i], kept[i])) << i;
}

TEST(Recomputed, WhatFollowsKeepsNoResultOfAnActivation) {
  const Branch branch;
  const auto kept = [&](const std::function<Tensor(const Tensor&)>& activation) {
    const int64_t before = memory_stats({}).current;
    const Tensor h = linear(branch.x, branch.up);
    const Tensor y = linear(activation(h), branch.down);
    return memory_stats({}).current - before;
  };
  for (Tensor (*f)(const Tensor&) : {gelu, silu, mish, hardswish, selu}) EXPECT_LT(kept(f), 1.5 * kBytes);
  EXPECT_LT(kept([](const Tensor& h) { return layer_norm(h); }), 1.5 * kBytes);
  EXPECT_LT(kept([](const Tensor& h) { return leaky_relu(h, 0.1); }), 1.5 * kBytes);
  EXPECT_GE(kept([](const Tensor& h) { return gelu(h) * 1.0; }), 2 * kBytes);
}

TEST(Recomputed, AGraphThatIsKeptGivesTheSameAgain) {
  const Branch branch;
  const Tensor loss = sum(square(branch.forward([](const Tensor& t) { return t; })));
  backward(loss);
  const Tensor once = grad(branch.up) * 1.0;
  zero_grad(branch.up);
  backward(loss);
  EXPECT_TRUE(same_bytes(grad(branch.up), once));
}

TEST(Recomputed, WritesToTheResultDoNotMatterThoseToItsInputAreNamed) {
  const Tensor x = leaf(randn({8})), other = leaf(ones({8}));
  const Tensor a = x * 2.0, y = gelu(a), loss = sum(y * other);
  const Tensor want = y.detach() * 1.0;
  fill_(y.detach(), 7);
  backward(loss);
  EXPECT_TRUE(same_bytes(grad(other), want));
  fill_(a.detach(), 7);
  const std::string message = message_of<AutogradError>([&] { backward(loss); });
  EXPECT_NE(message.find("fill_ has written"), std::string::npos) << message;
}

// An activation of an activation keeps its input: nothing is computed again in turn.
TEST(Recomputed, LongChainsNeedNoStack) {
  const Tensor x = leaf(ones({1})), w = leaf(ones({1}));
  Tensor y = x;
  for (int i = 0; i < 30000; ++i) y = reshape(gelu(gelu(y)), {1, 1}) * w;
  backward(sum(y));
  EXPECT_TRUE(grad(w).defined());
  y = {};
}

}  // namespace
}  // namespace ringtape
