// Flat parameters and schedules. That the update rules are PyTorch's is in pytorch_test.cpp.
#include <cmath>

#include "autograd/create.h"
#include "nn/nn.h"
#include "tests/support.h"
#include "train/optim/adam.h"
#include "train/optim/schedule.h"
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
  for (const nn::Named& p : nn::named_parameters(model)) EXPECT_EQ(grad(*p.tensor).storage(), flat.gradients().storage());
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
  EXPECT_NE(test::message_of<AutogradError>([&] { backward(y); }).find("optimizer step has written"), std::string::npos);
}

TEST(Optimizer, RejectsWhatMakesNoSense) {
  nn::Linear layer(2, 2);
  FlatParameters flat(layer);
  EXPECT_NE(test::message_of<UsageError>([&] { Sgd(flat, {.nesterov = true}); }).find("momentum"), std::string::npos);
  nn::Sequential empty;
  EXPECT_NE(test::message_of<UsageError>([&] { FlatParameters{empty}; }).find("without parameters"), std::string::npos);
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

TEST(Schedule, FollowsItsFormulas) {
  const Schedule constant{.lr = 0.1};
  EXPECT_EQ(constant.at(12345), 0.1);

  const Schedule step{.kind = Schedule::Kind::step, .lr = 1, .steps_per_epoch = 10, .epochs = 60, .step_size = 25, .gamma = 0.1};
  EXPECT_EQ(step.at(249), 1);
  EXPECT_NEAR(step.at(250), 0.1, 1e-15);
  EXPECT_NEAR(step.at(599), 0.01, 1e-15);

  const Schedule cosine{.kind = Schedule::Kind::cosine, .lr = 2, .steps_per_epoch = 10, .epochs = 11, .warmup_epochs = 1, .final_lr = 1};
  EXPECT_NEAR(cosine.at(0), 0.2, 1e-15);
  EXPECT_EQ(cosine.at(9), 2);
  EXPECT_EQ(cosine.at(10), 2);
  EXPECT_NEAR(cosine.at(60), 1.5, 1e-12);
  EXPECT_NEAR(cosine.at(110), 1, 1e-12);
  EXPECT_NE(test::message_of<UsageError>([] { parse_schedule("cos"); }).find("one of"), std::string::npos);
}

}  // namespace
}  // namespace ringtape
