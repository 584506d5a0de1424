// What modules, objectives and optimizers of one's own may leave out.
#include "autograd/create.h"
#include "autograd/inplace.h"
#include "core/log.h"
#include "nn/nn.h"
#include "tests/support/support.h"
#include "train/loop/objective.h"
#include "train/optim/sgd.h"

namespace ringtape {
namespace {

using test::values;

// A network whose visit() leaves out a child.
struct Forgetful : nn::Module {
  nn::Linear first{3, 4}, second{4, 2};
  Tensor forward(const Tensor& x) override { return second(first(x)); }
  void visit(nn::Visitor& v) override { v.child("first", first); }
  std::string str() const override { return "Forgetful"; }
};

TEST(OwnModule, AForgottenChildIsNamedOnce) {
  std::vector<std::string> lines;
  set_log_sink([&](const std::string& line) { lines.push_back(line); });
  Forgetful model;
  FlatParameters flat(model);
  Sgd optimizer(flat);
  for (int step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    const Tensor image = leaf(ones({2, 3}));  // has a gradient on purpose, of this pass alone
    backward(sum(model(image)));
    EXPECT_TRUE(grad(image).defined());
    optimizer.step(0.1);
    EXPECT_EQ(lines.size(), step == 0 ? 0u : 1u) << step;
  }
  set_log_sink({});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_MENTIONS(lines[0], "warning: tensors of shape (2, 4), (2,) get gradients, but no FlatParameters has them");
}

TEST(OwnModule, GradientsWithoutFlatBuffersAreNoMistake) {
  std::vector<std::string> lines;
  set_log_sink([&](const std::string& line) { lines.push_back(line); });
  Forgetful model;
  nn::Sequential whole;
  whole.add<nn::Linear>(3, 4).add<nn::Linear>(4, 2);
  FlatParameters flat(whole);
  for (int step = 0; step < 3; ++step) {
    backward(sum(model(ones({2, 3}))));
    backward(sum(whole(ones({2, 3}))));
  }
  set_log_sink({});
  EXPECT_EQ(lines, std::vector<std::string>{});
}

TEST(OwnObjective, NamesOnlyWhatItHas) {
  const Outcome outcome{.loss = ones({}), .logits = ones({1, 2})};  // without warnings
  EXPECT_FALSE(outcome.auxiliary_loss.defined() || outcome.spread.defined());
}

// An update rule that does not know of the factor.
struct SignRule : Optimizer {
  explicit SignRule(FlatParameters& parameters) : Optimizer(parameters) {}
  std::vector<NamedTensor> state() const override { return {}; }
  bool wants_squares() const override { return true; }
  void update(int64_t begin, int64_t end, const View& factor, const Again<double>& lr) override {
    EXPECT_FALSE(factor.data);
    add_(parameters_.values({begin, end}), parameters_.gradients({begin, end}), -lr());
    found = sum(squares_).item();
  }
  double found = 0;
};

TEST(OwnOptimizer, ARuleWithoutAFactorGetsMultipliedGradients) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    nn::Linear layer(2, 3);
    nn::cast_to(layer, dtype);
    FlatParameters flat(layer);
    SignRule rule(flat);
    const std::vector<double> before = values(layer.bias);
    backward(sum(layer(ones({4, 2}, dtype))));  // of the bias: 4 each, of the weights, too
    rule.step(1, full({1}, 0.0));
    EXPECT_EQ(values(layer.bias), before) << "a factor of 0 skips the step";
    EXPECT_EQ(rule.steps(), 1);
    rule.step(1, full({1}, 0.25));
    for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(values(layer.bias)[i], before[i] - 1, 1e-6);
    EXPECT_NEAR(rule.found, 9, 1e-6);
  }
}

}  // namespace
}  // namespace ringtape
