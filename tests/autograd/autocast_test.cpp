// Mixed precision: every op converts its operands as the table says, and gradients reach f32 parameters.
#include "autograd/autocast.h"

#include <algorithm>

#include "autograd/checkpoint.h"
#include "autograd/create.h"
#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "nn/nn.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

std::optional<CastPolicy> policy_of(const std::string& op) {
  for (const AutocastRule& rule : kAutocastRules)
    if (rule.op == op) return rule.policy;
  return {};
}

TEST(Autocast, EveryOpFollowsTheTable) {
  size_t followed = 0;
  for (const Op& op : ops()) {
    const Sample& sample = op.samples[0];
    const std::optional<CastPolicy> policy = policy_of(op.name);
    followed += policy.has_value();
    for (DType given : {DType::f32, DType::bf16, DType::f64}) {
      const Tensors inputs = draw(sample, given, 1, op.kinks);
      const Tensor plain = sample.call(inputs);
      const Autocast autocast(DType::bf16);
      const Tensor y = sample.call(inputs);
      DType expected = plain.dtype();
      if (given != DType::f64 && policy == CastPolicy::lower) expected = DType::bf16;
      if (given != DType::f64 && policy == CastPolicy::full) expected = DType::f32;
      EXPECT_EQ(y.dtype(), expected) << op.name << " of " << name_of(given);
      if (is_float(y.dtype())) test::expect_close(y, plain, 0.05, 0.05, op.name);
    }
  }
  const auto known = [](const AutocastRule& rule) {
    return std::any_of(ops().begin(), ops().end(), [&](const Op& op) { return rule.op == op.name; });
  };
  EXPECT_EQ(followed, size_t(std::count_if(std::begin(kAutocastRules), std::end(kAutocastRules), known)));
  EXPECT_GE(followed, 20u);
}

TEST(Autocast, MixedOperandsTakeTheWidestDtype) {
  const Tensor a = ones({3}), b = full({3}, 2, DType::bf16), c = full({3}, 2, DType::f16);
  EXPECT_THROW(concat({b, a}), DTypeError);
  const Autocast autocast(DType::bf16);
  EXPECT_EQ((a + b).dtype(), DType::f32);
  EXPECT_EQ((b * b).dtype(), DType::bf16);
  EXPECT_EQ((b - c).dtype(), DType::f32);
  EXPECT_EQ(concat({b, a}).dtype(), DType::f32);
  EXPECT_EQ(where(greater(a, 0.0), b, a).dtype(), DType::f32);
}

TEST(Autocast, AParameterIsConvertedOnceAndItsGradientIsF32) {
  nn::Linear layer(4, 3);
  const Tensor x = rand({2, 4});
  const auto gradient = [&](bool casting) {
    zero_grad(layer.weight);
    const Autocast autocast(casting ? DType::bf16 : DType::f32);
    if (casting) {
      const CastTo to = ringtape::autocast("linear", layer.weight);
      EXPECT_EQ(View(to(layer.weight)).data, View(to(layer.weight)).data);
      const Tensor first = to(layer.weight);
      layer.weight.storage()->written_by("test");
      EXPECT_NE(View(to(layer.weight)).data, View(first).data);
      const NoGrad no_grad;
      EXPECT_FALSE(requires_grad(to(layer.weight)));
    }
    const Tensor y = layer(x) + layer(x);
    EXPECT_EQ(y.dtype(), casting ? DType::bf16 : DType::f32);
    backward(sum(square(y)));
    return grad(layer.weight);
  };
  const Tensor plain = gradient(false), cast = gradient(true);
  EXPECT_EQ(cast.dtype(), DType::f32);
  test::expect_close(cast, plain, 0.03, 0.1, "gradient");
}

TEST(Autocast, ACheckpointedSectionIsRepeatedAsItWas) {
  nn::Linear layer(4, 3);
  const Tensor x = leaf(rand({2, 4}));
  std::vector<Tensor> gradients;
  for (bool repeated : {false, true}) {
    zero_grad(layer.weight), zero_grad(x);
    const auto section = [&](const Tensors& t) {
      return softmax(layer(layer(t[0]).dtype() == DType::bf16 ? relu(t[0]) : t[0]));
    };
    Tensor loss;
    {
      const Autocast autocast(DType::bf16);
      loss = sum(square(repeated ? checkpoint(section, {x}) : section({x})));
    }
    backward(loss);
    gradients.push_back(grad(layer.weight));
  }
  EXPECT_TRUE(test::same_bytes(gradients[0], gradients[1]));
}

TEST(Autocast, NestsAndEnds) {
  EXPECT_EQ(autocast_dtype(), DType::f32);
  {
    const Autocast outer(DType::bf16);
    EXPECT_EQ(autocast_dtype(), DType::bf16);
    {
      const Autocast none(DType::f32);
      EXPECT_EQ(matmul(ones({2, 2}), ones({2, 2})).dtype(), DType::f32);
    }
    EXPECT_EQ(autocast_dtype(), DType::bf16);
  }
  EXPECT_EQ(autocast_dtype(), DType::f32);
  EXPECT_THROW(Autocast{DType::f64}, DTypeError);
}

}  // namespace
}  // namespace ringtape
