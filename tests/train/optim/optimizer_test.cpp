// Flat parameters and optimizers. pytorch_test.cpp compares the update rules with PyTorch's.
#include <cmath>
#include <span>

#include "autograd/create.h"
#include "autograd/inplace.h"
#include "nn/nn.h"
#include "tests/support/support.h"
#include "train/optim/adam.h"
#include "train/optim/lars.h"
#include "train/optim/muon.h"
#include "train/optim/sgd.h"

namespace ringtape {
namespace {

using test::values;

TEST(FlatParameters, KeepValuesAndShareMemory) {
  nn::Sequential model;
  model.add<nn::Linear>(3, 5).add<nn::Linear>(5, 2);
  std::vector<std::vector<double>> before;
  for (const nn::Named& p : nn::named_parameters(model)) before.push_back(values(*p.tensor));
  FlatParameters flat(model);
  size_t i = 0;
  for (const nn::Named& p : nn::named_parameters(model)) {
    EXPECT_EQ(values(*p.tensor), before[i++]);
    EXPECT_EQ(p.tensor->storage(), flat.values().storage());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(View(*p.tensor).data) % 64, 0u);
  }
  backward(sum(model(ones({4, 3}))));
  for (const nn::Named& p : nn::named_parameters(model))
    EXPECT_EQ(grad(*p.tensor).storage(), flat.gradients().storage());
  EXPECT_EQ(flat.with_gradient().size(), 1u);
}

TEST(FlatParameters, AParameterWithoutAGradientStaysAsItIs) {
  nn::Sequential model;
  model.add<nn::Linear>(3, 3).add<nn::Linear>(3, 3).add<nn::Linear>(3, 3);
  FlatParameters flat(model);
  Sgd optimizer(flat, {.momentum = 0.9, .weight_decay = 0.1});
  auto& unused = dynamic_cast<nn::Linear&>(model[1]);
  const std::vector<double> before = values(unused.weight);
  backward(sum(model[2](model[0](ones({2, 3})))));
  EXPECT_EQ(flat.with_gradient().size(), 2u);
  optimizer.step(0.1);
  EXPECT_EQ(values(unused.weight), before);
}

TEST(Optimizer, AStepCountsAsAWriteToTheParameters) {
  nn::Linear layer(2, 2);
  FlatParameters flat(layer);
  Sgd optimizer(flat);
  const Tensor x = leaf(ones({1, 2})), y = sum(layer(x));
  backward(y);
  optimizer.step(0.1);
  EXPECT_MENTIONS(test::message_of<AutogradError>([&] { backward(y); }), "optimizer step has written");
}

TEST(Optimizer, RejectsWhatMakesNoSense) {
  nn::Linear layer(2, 2);
  FlatParameters flat(layer);
  EXPECT_NE(test::message_of<UsageError>([&] { Sgd(flat, {.nesterov = true}); }).find("momentum"), std::string::npos);
  nn::Sequential empty;
  EXPECT_NE(test::message_of<UsageError>([&] { FlatParameters{empty}; }).find("without parameters"), std::string::npos);
}

TEST(Optimizer, SaysThatItsModuleIsNoLongerItsOwn) {
  nn::Linear model(2, 2);
  FlatParameters flat(model);
  Sgd optimizer(flat);
  nn::cast_to(model, DType::f64);
  backward(sum(model(ones({1, 2}, DType::f64))));
  EXPECT_MENTIONS(test::message_of<AutogradError>([&] { optimizer.step(0.1); }),
                  "the module has other parameters now; move or cast it");
}

// Each parameter takes the same step as if all parameters had its rate; the last layer has no gradient.
TEST(Optimizer, SomeParametersMayHaveARateOfTheirOwn) {
  const auto trained = [](const std::string& rule, double lr, bool fix) {
    manual_seed(7);
    nn::Sequential model;
    model.add<nn::Linear>(5, 6).add<nn::Linear>(6, 6).add<nn::Linear>(6, 3).add<nn::Linear>(3, 3);
    FlatParameters flat(model);
    std::unique_ptr<Optimizer> optimizer;
    if (rule == "adam") optimizer = std::make_unique<Adam>(flat);
    else if (rule == "lars") optimizer = std::make_unique<Lars>(flat, Lars::Options{.weight_decay = 0.01});
    else optimizer = std::make_unique<Sgd>(flat, Sgd::Options{.momentum = 0.9});
    if (fix) optimizer->fix_lr("1.", 0.5);
    backward(sum(square(model[2](model[1](model[0](ones({2, 5})))))));
    optimizer->step(lr);
    std::vector<std::vector<double>> out;
    for (const nn::Named& p : nn::named_parameters(model)) out.push_back(values(*p.tensor));
    return out;
  };
  for (const std::string rule : {"sgd", "adam", "lars"}) {
    const auto slow = trained(rule, 0.1, false), fast = trained(rule, 0.5, false), mixed = trained(rule, 0.1, true);
    EXPECT_NE(slow[0], fast[0]);
    for (size_t i = 0; i < mixed.size(); ++i)
      EXPECT_EQ(mixed[i], i / 2 == 1 ? fast[i] : slow[i]) << rule << ", parameter " << i;
  }
}

// As one that has it from the beginning, since the first step needs none.
TEST(Optimizer, MomentumMayChangeBetweenSteps) {
  const auto trained = [](const std::string& rule, double momentum, double later) {
    manual_seed(7);
    nn::Linear layer(5, 6);
    FlatParameters flat(layer);
    std::unique_ptr<Optimizer> optimizer;
    if (rule == "lars") optimizer = std::make_unique<Lars>(flat, Lars::Options{.momentum = momentum});
    else if (rule == "muon") optimizer = std::make_unique<Muon>(flat, Muon::Options{.momentum = momentum});
    else optimizer = std::make_unique<Sgd>(flat, Sgd::Options{.momentum = momentum});
    for (const double each : {momentum, later}) {
      EXPECT_TRUE(optimizer->set_momentum(each));
      optimizer->zero_grad();
      backward(sum(square(layer(ones({2, 5})))));
      optimizer->step(0.01);
    }
    return values(layer.weight);
  };
  for (const std::string rule : {"sgd", "lars", "muon"})
    EXPECT_NE(trained(rule, 0.9, 0.1), trained(rule, 0.9, 0.9)) << rule;
  for (const std::string rule : {"sgd", "lars"}) EXPECT_EQ(trained(rule, 0.5, 0.9), trained(rule, 0.9, 0.9)) << rule;
  nn::Linear layer(2, 2);
  FlatParameters flat(layer);
  EXPECT_FALSE(Sgd(flat).set_momentum(0.5));
  Adam adam(flat);
  EXPECT_TRUE(adam.set_momentum(0.5));
}

TEST(Optimizer, FindsTheMinimumOfABowl) {
  for (bool adam : {false, true}) {
    nn::Linear layer(4, 1, false);
    FlatParameters flat(layer);
    std::unique_ptr<Optimizer> optimizer;
    if (adam) optimizer = std::make_unique<Adam>(flat);
    else optimizer = std::make_unique<Sgd>(flat, Sgd::Options{.momentum = 0.9});
    const Tensor target = from_host(std::vector<float>{1, -2, 3, 0.5f}, {1, 4});
    for (int i = 0; i < 500; ++i) {
      optimizer->zero_grad();
      backward(sum(square(layer.weight - target)));
      optimizer->step(adam ? 0.05 : 0.02);
    }
    test::expect_close(layer.weight, target, 0, 1e-3, adam ? "adam" : "sgd");
    EXPECT_EQ(optimizer->steps(), 500);
  }
}

// One parameter, by the rule of torch.optim.Adam and AdamW: without a gradient it takes no step.
struct AdamByHand {
  Adam::Options o;
  std::vector<double> w, m = std::vector<double>(w.size()), v = m;
  int64_t number = 0;

  void step(const std::vector<double>& g, double lr) {
    ++number;
    const double correction1 = 1 - std::pow(o.beta1, double(number)),
                 correction2 = 1 - std::pow(o.beta2, double(number));
    for (size_t i = 0; i < w.size(); ++i) {
      if (o.decoupled) w[i] -= lr * o.weight_decay * w[i];
      const double grad = o.decoupled ? g[i] : g[i] + o.weight_decay * w[i];
      m[i] = o.beta1 * m[i] + (1 - o.beta1) * grad;
      v[i] = o.beta2 * v[i] + (1 - o.beta2) * grad * grad;
      w[i] -= lr / correction1 * m[i] / (std::sqrt(v[i]) / std::sqrt(correction2) + o.eps);
    }
  }
};

// Three layers, of which only some take part in a step.
struct Layers {
  nn::Sequential model;
  std::unique_ptr<FlatParameters> flat;
  std::unique_ptr<Adam> adam;

  Layers(DType dtype, const Adam::Options& o) {
    manual_seed(6);
    model.add<nn::Linear>(5, 6).add<nn::Linear>(5, 6).add<nn::Linear>(5, 6);
    nn::cast_to(model, dtype);
    flat = std::make_unique<FlatParameters>(model);
    adam = std::make_unique<Adam>(*flat, o);
  }
  // `takes_part`: its bits are the layers.
  void step(int step, unsigned takes_part, double lr, const Tensor& factor = {}) {
    manual_seed(uint64_t(100 + step));
    const Tensor x = randn({3, 5}, 0, 1, flat->values().dtype());
    adam->zero_grad();
    Tensor loss;
    for (size_t i = 0; i < 3; ++i)
      if (takes_part >> i & 1)
        loss = loss.defined() ? loss + sum(square(model[i](x) - 1)) : sum(square(model[i](x) - 1));
    if (loss.defined()) backward(loss);
    adam->step(lr, factor);
  }
};

constexpr unsigned kFreezing[] = {0b111, 0b001, 0b101, 0b000, 0b110, 0b111, 0b010, 0b111};
constexpr unsigned kAll[] = {0b111, 0b111, 0b111, 0b111};

TEST(Adam, CountsTheStepsOfEachParameter) {
  using Options = Adam::Options;
  for (const Options& o : {Options{}, Options{.weight_decay = 0.01}, Options{.weight_decay = 0.1, .decoupled = true}}) {
    Layers layers(DType::f64, o);
    std::vector<AdamByHand> expected;
    for (const nn::Named& p : nn::named_parameters(layers.model)) expected.push_back({o, values(*p.tensor)});
    int number = 0;
    for (const unsigned takes_part : kFreezing) {
      layers.step(number++, takes_part, 0.03);
      size_t i = 0;
      for (const nn::Named& p : nn::named_parameters(layers.model)) {
        AdamByHand& own = expected[i++];
        EXPECT_EQ(grad(*p.tensor).defined(), (takes_part >> (p.name[0] - '0') & 1) == 1) << p.name;
        if (grad(*p.tensor).defined()) own.step(values(grad(*p.tensor)), 0.03);
        test::expect_close(*p.tensor, from_host(own.w, p.tensor->shape()), 1e-12, 1e-13,
                           concat(p.name, " after step ", number));
      }
    }
    EXPECT_EQ(layers.adam->steps(), 8);
    EXPECT_EQ(layers.adam->own_steps(), (std::vector<int64_t>{5, 5, 5, 5, 5, 5}));
  }
}

// Its first step is as long as the first step of any other parameter: the full learning rate.
TEST(Adam, AParameterThatComesLateBeginsAsOthersDid) {
  Layers layers(DType::f64, {.eps = 0});
  for (int i = 0; i < 4; ++i) layers.step(i, 0b011, 0.01);
  const Tensor& late = dynamic_cast<nn::Linear&>(layers.model[2]).weight;
  const std::vector<double> before = values(late);
  layers.step(4, 0b111, 0.01);
  const std::vector<double> after = values(late);
  for (size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(std::abs(after[i] - before[i]), 0.01, 1e-12);
  EXPECT_EQ(layers.adam->own_steps(), (std::vector<int64_t>{5, 5, 5, 5, 1, 1}));
}

TEST(Adam, GoesOnAsIfItHadNotStopped) {
  for (const auto& course : {std::span<const unsigned>(kFreezing), std::span<const unsigned>(kAll)}) {
    const auto n = int(course.size());
    Layers whole(DType::f32, {}), first(DType::f32, {}), second(DType::f32, {});
    for (int i = 0; i < n; ++i) whole.step(i, course[size_t(i)], 0.03);
    for (int i = 0; i < n / 2; ++i) first.step(i, course[size_t(i)], 0.03);
    EXPECT_EQ(first.adam->own_steps().empty(), course.data() == kAll);  // no additional state
    copy_(second.flat->values(), first.flat->values());
    for (size_t i = 0; i < 2; ++i) copy_(second.adam->state()[i].tensor, first.adam->state()[i].tensor);
    second.adam->set_steps(first.adam->steps(), first.adam->own_steps());
    for (int i = n / 2; i < n; ++i) second.step(i, course[size_t(i)], 0.03);
    EXPECT_EQ(values(second.flat->values()), values(whole.flat->values()));
    EXPECT_EQ(second.adam->own_steps(), whole.adam->own_steps());
  }
  Layers layers(DType::f32, {});
  EXPECT_MENTIONS(test::message_of<FormatError>([&] {
                    layers.adam->set_steps(3, {1, 2});
                  }),
                  "2 parameters for a model of 6");
  EXPECT_MENTIONS(test::message_of<FormatError>([&] {
                    layers.adam->set_steps(3, {1, 2, 3, 4, 3, 3});
                  }),
                  "4 of 3 steps");
}

// With a state that has no steps of single parameters, as earlier versions wrote it, all parameters have taken every
// step.
TEST(Adam, WithoutStepsOfItsOwnAParameterHasTakenAll) {
  Layers layers(DType::f64, {.eps = 0});
  layers.adam->set_steps(4);
  EXPECT_TRUE(layers.adam->own_steps().empty());
  const std::vector<double> before = values(layers.flat->values());
  layers.step(0, 0b100, 0.01);
  const std::vector<double> after = values(layers.flat->values());
  const double length = 0.01 * (1 - 0.9) / (1 - std::pow(0.9, 5)) / std::sqrt((1 - 0.999) / (1 - std::pow(0.999, 5)));
  const FlatParameters::Parameter& weight = layers.flat->parameters()[4];
  for (auto i = size_t(weight.begin); i < size_t(weight.begin) + 30; ++i)
    EXPECT_NEAR(std::abs(after[i] - before[i]), length, 1e-12);
  EXPECT_EQ(layers.adam->own_steps(), (std::vector<int64_t>{4, 4, 4, 4, 5, 5}));
}

// The host does not learn that a step was skipped: it counts as a step for parameters with a gradient.
TEST(Adam, AStepLeftOutCountsForThoseThatHadAGradient) {
  Layers layers(DType::f32, {});
  const std::vector<double> before = values(layers.flat->values());
  layers.step(0, 0b011, 0.03, full({1}, 0));
  EXPECT_EQ(values(layers.flat->values()), before);
  EXPECT_EQ(layers.adam->own_steps(), (std::vector<int64_t>{1, 1, 1, 1, 0, 0}));
}

// tests/autograd/pytorch_test.cpp checks its rule. This test checks the factor: gradients of another scale make the
// same first step, and a factor of 0 makes none.
TEST(Muon, OrthogonalisedStepsDoNotKnowTheScaleOfGradients) {
  const auto weights = [](const Tensor& factor, int steps) {
    manual_seed(4);
    nn::Sequential model;
    model.add<nn::Linear>(5, 3, false).add<nn::Tanh>().add<nn::Linear>(3, 7, false);
    FlatParameters flat(model);
    Muon muon(flat, {.weight_decay = 0.1});
    std::vector<std::vector<double>> out = {values(flat.values())};
    for (int i = 0; i < steps; ++i) {
      muon.zero_grad();
      backward(sum(square(model(rand({4, 5})) - 1)));
      muon.step(0.02, factor);
    }
    out.push_back(values(flat.values()));
    for (const NamedTensor& t : muon.state()) out.push_back(values(t.tensor));
    EXPECT_EQ(muon.own_steps(), std::vector<int64_t>());
    return out;
  };
  const auto plain = weights({}, 1), scaled = weights(full({1}, 0.125), 1), left_out = weights(full({1}, 0), 3);
  EXPECT_NE(plain[0], plain[1]);
  for (size_t i = 0; i < plain[1].size(); ++i) EXPECT_NEAR(plain[1][i], scaled[1][i], 1e-6);
  EXPECT_EQ(left_out[0], left_out[1]);
  for (size_t state : {2, 3})
    for (const double x : left_out[state]) EXPECT_EQ(x, 0);
}

TEST(Muon, DecayDoesNotKnowTheShape) {
  nn::Sequential model;
  model.add<nn::Linear>(5, 3, false).add<nn::Linear>(3, 12, false);
  FlatParameters flat(model);
  Muon muon(flat, {.weight_decay = 0.1});
  const Tensor expected = flat.values().copy_to(Device{}) * (1 - 0.5 * 0.1);
  backward(sum(model(rand({4, 5})) * 0.0));
  muon.step(0.5);
  test::expect_close(flat.values(), expected, 0, 1e-6, "without gradients");
}

// One parameter, by the rule of solo-learn.
struct LarsByHand {
  Lars::Options o;
  bool adapted;
  std::vector<double> w, v = std::vector<double>(w.size());

  void step(const std::vector<double>& g, double lr, double factor) {
    double w_squares = 0, g_squares = 0;
    for (size_t i = 0; i < w.size(); ++i) w_squares += w[i] * w[i], g_squares += factor * g[i] * factor * g[i];
    double ratio = o.eta * std::sqrt(w_squares) / (std::sqrt(g_squares) + o.weight_decay * std::sqrt(w_squares) + 1e-8),
           decay = o.weight_decay;
    if (o.clip) ratio = std::min(ratio / lr, 1.0);
    if (!adapted || w_squares == 0 || g_squares == 0) ratio = 1, decay = 0;
    for (size_t i = 0; i < w.size(); ++i) {
      const double d = ratio * (factor * g[i] + decay * w[i]);
      v[i] = o.momentum * v[i] + d;
      w[i] -= lr * (o.nesterov ? d + o.momentum * v[i] : o.momentum > 0 ? v[i] : d);
    }
  }
};

TEST(Lars, FollowsItsRule) {
  for (const Lars::Options& o :
       {Lars::Options{.weight_decay = 0.01}, Lars::Options{.momentum = 0, .weight_decay = 0.01},
        Lars::Options{.weight_decay = 1e-4, .eta = 0.5, .nesterov = true},
        Lars::Options{.weight_decay = 0.01, .clip = true}}) {
    manual_seed(5);
    nn::Sequential model;
    // The first weight has more than one chunk.
    model.add<nn::Linear>(300, 250).add<nn::Linear>(250, 3).add<nn::Linear>(3, 2);
    nn::cast_to(model, DType::f64);
    Tensor& second = dynamic_cast<nn::Linear&>(model[1]).weight;
    second = leaf(zeros(second.shape(), DType::f64));  // its norm is 0 at first, and the first layer's gradient is 0
    FlatParameters flat(model);
    Lars lars(flat, o);
    std::vector<LarsByHand> expected;
    for (const nn::Named& p : nn::named_parameters(model))
      expected.push_back({o, p.tensor->rank() > 1, values(*p.tensor)});
    const Tensor x = randn({7, 300}, 0, 1, DType::f64);
    for (double factor : {1.0, 0.5, 0.0, 1.0}) {
      lars.zero_grad();
      backward(sum(square(model[1](model[0](x)))));  // the last layer has no gradient and does not change
      const Tensor scale = full({1}, factor);
      size_t i = 0;
      for (const nn::Named& p : nn::named_parameters(model)) {
        if (factor != 0 && grad(*p.tensor).defined()) expected[i].step(values(grad(*p.tensor)), 0.03, factor);
        ++i;
      }
      lars.step(0.03, factor == 1 ? Tensor() : scale);
    }
    size_t i = 0;
    for (const nn::Named& p : nn::named_parameters(model)) {
      test::expect_close(*p.tensor, from_host(expected[i].w, p.tensor->shape()), 1e-12, 1e-12, p.name);
      ++i;
    }
    EXPECT_EQ(lars.state().size(), o.momentum > 0 ? 1u : 0u);
  }
}

TEST(Lars, IsTheSameForAnyNumberOfThreads) {
  std::vector<std::vector<double>> found;
  for (int threads : {1, 3}) {
    manual_seed(5);
    nn::Linear layer(400, 400);
    FlatParameters flat(layer);
    Lars lars(flat, {.weight_decay = 0.01});
    test::with_threads(threads, [&] {
      backward(sum(square(layer(ones({2, 400})))));
      lars.step(0.1);
    });
    found.push_back(values(layer.weight));
  }
  EXPECT_EQ(found[0], found[1]);
}

}  // namespace
}  // namespace ringtape
