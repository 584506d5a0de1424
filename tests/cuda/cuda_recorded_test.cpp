// Recorded work repeated with other numbers: the same bytes as without recording.
#include <thread>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "core/cuda/graph.h"
#include "core/recording.h"
#include "core/runtime.h"
#include "kernels/copy.h"
#include "kernels/fill.h"
#include "kernels/optimizer.h"
#include "nn/nn.h"
#include "tests/support/cuda_support.h"
#include "tests/support/support.h"
#include "train/optim/optimizers.h"

namespace ringtape {
namespace {

using test::kCuda;
using test::values;

// A small network with dropout and its optimizer, on the GPU.
struct Small {
  nn::Sequential model;
  Tensor x, y;
  std::unique_ptr<FlatParameters> parameters;
  std::unique_ptr<Optimizer> optimizer;

  explicit Small(const char* rule) {
    manual_seed(3);
    model.add<nn::Linear>(12, 9).add<nn::ReLU>().add<nn::Dropout>(0.2).add<nn::Linear>(9, 4);
    nn::move_to(model, kCuda);
    parameters = std::make_unique<FlatParameters>(model);
    optimizer = make_optimizer(Selection(optimizers(), rule), *parameters);
    std::vector<ParameterRule> rules(4);
    rules[1].lr_factor = 0.3, rules[3].fixed_lr = 0.02;
    optimizer->set_rules(rules);
    x = rand({8, 12}, -1, 1, DType::f32, kCuda);
    y = from_host(std::vector<int64_t>{0, 1, 2, 3, 3, 2, 1, 0}, {8}, kCuda);
    manual_seed(4);
  }
  void step(double lr) {
    optimizer->zero_grad();
    backward(cross_entropy(model(x), y));
    optimizer->step(lr);
  }
  std::vector<double> state() const {
    std::vector<double> out = values(parameters->values());
    for (const NamedTensor& t : optimizer->state())
      for (const double v : values(t.tensor)) out.push_back(v);
    return out;
  }
};

class Recorded : public test::OnCuda {};

TEST_F(Recorded, StepsOfEveryOptimizerAskForRateMomentumNumberAndDropout) {
  const auto rate = [](int i) { return 0.01 * (1 + i % 3); };
  for (const OptimizerEntry& rule : optimizers()) {
    Small plain(rule.name);
    std::vector<std::vector<double>> expected;
    for (int i = 0; i < 6; ++i) {
      plain.optimizer->set_momentum(0.9 - 0.05 * i);
      plain.step(rate(i));
      expected.push_back(plain.state());
    }
    Small recorded(rule.name);
    ASSERT_TRUE(recorded.optimizer->repeats()) << rule.name;
    recorded.optimizer->set_momentum(0.9);
    recorded.step(rate(0));
    RandomState from = default_generator().state();
    default_generator().set_state({from.seed, from.stream, 0, &from});
    recorded.optimizer->set_momentum(0.85);
    cuda::Graph graph(0, [&] { recorded.step(rate(1)); });
    const uint64_t drawn = default_generator().state().counter;
    EXPECT_GT(drawn, 0u);
    const std::vector<char> reached = recorded.optimizer->reached();
    for (int i = 1; i < 6; ++i) {
      recorded.optimizer->set_momentum(0.9 - 0.05 * i);
      if (i > 1) recorded.optimizer->repeat(rate(i), reached), from.counter += drawn;
      graph.launch();
      EXPECT_EQ(recorded.state(), expected[size_t(i)]) << rule.name << ", step " << i;
    }
    EXPECT_EQ(recorded.optimizer->steps(), plain.optimizer->steps());
    EXPECT_EQ(recorded.optimizer->missed_steps(), std::vector<int64_t>(4, 0));
  }
}

TEST_F(Recorded, RandomNumbersBeginWhereEachLaunchSays) {
  RandomState from{5, Stream::test, 7};
  const RandomState second{0, Stream::tensors, 3, &from}, fixed{6, Stream::test, 1};
  const Tensor uniform({50}, DType::f32, kCuda), normal({50}, DType::f64, kCuda), same({50}, DType::f32, kCuda);
  cuda::Graph graph(0, [&] {
    fill_uniform(uniform, second, -1, 1), fill_normal(normal, second, 0, 1), fill_uniform(same, fixed, 0, 1);
  });
  for (int i = 0; i < 3; ++i) {
    graph.launch();  // the host goes on, and changes the state: a launch has read it
    from = {from.seed + 1, from.stream, from.counter + 13};
    const RandomState here{from.seed - 1, Stream::test, from.counter - 10};
    const Tensor a({50}, DType::f32, kCuda), b({50}, DType::f64, kCuda), c({50}, DType::f32, kCuda);
    fill_uniform(a, here, -1, 1), fill_normal(b, here, 0, 1), fill_uniform(c, fixed, 0, 1);
    EXPECT_EQ(values(uniform), values(a)) << i;
    EXPECT_EQ(values(normal), values(b)) << i;
    EXPECT_EQ(values(same), values(c)) << i;
  }
}

TEST_F(Recorded, NothingOfTheGraphLiesWhereNumbersArrive) {
  RandomState from{5, Stream::test, 7};
  const Tensor x({4}, DType::f32, kCuda), expected({4}, DType::f32, kCuda);
  cuda::Graph graph(0, [&] {
    for (const int64_t size : {int64_t{1} << 14, int64_t{1} << 15, int64_t{100}})
      fill_uniform(Tensor({size}, DType::f32, kCuda), {1, Stream::test, 2}, 0, 1);  // memory that is free again
    fill_uniform(x, {0, Stream::tensors, 3, &from}, -1, 1);
  });
  graph.launch();
  fill_uniform(expected, {5, Stream::test, 10}, -1, 1);
  EXPECT_EQ(values(x), values(expected));
}

// The host goes on after a launch: the numbers of the next one may not come too early.
TEST_F(Recorded, LaunchesFollowEachOtherWithoutWaiting) {
  RandomState from{5, Stream::test, 7};
  const Tensor x({50}, DType::f32, kCuda), expected({50}, DType::f32, kCuda);
  cuda::Graph graph(0, [&] { fill_uniform(x, {0, Stream::tensors, 3, &from}, -1, 1); });
  std::vector<Tensor> kept;
  for (int i = 0; i < 20; ++i) {
    from.counter = uint64_t(100 * i);
    graph.launch();
    copy(kept.emplace_back(empty_like(x)), x);
  }
  for (int i = 0; i < 20; ++i) {
    fill_uniform(expected, {5, Stream::test, uint64_t(100 * i + 3)}, -1, 1);
    EXPECT_EQ(values(kept[size_t(i)]), values(expected)) << i;
  }
}

TEST_F(Recorded, NumbersOfAnySizeAreAligned) {
  RandomState from{5, Stream::test, 7};
  const Tensor w = full({9}, 1, DType::f32, kCuda), v = zeros({9}, DType::f32, kCuda), g = ones({9}, DType::f32, kCuda),
               x({4}, DType::f32, kCuda), expected({4}, DType::f32, kCuda);
  SgdStep now{0.5, 0.5, 0, false};
  const Again<SgdStep> step = [&] { return now; };
  cuda::Graph graph(0, [&] {
    sgd_step(w, v, g, View{}, asked(step));  // five floats
    fill_uniform(x, {0, Stream::tensors, 3, &from}, -1, 1);
  });
  now.lr = 0.25;
  graph.launch();
  fill_uniform(expected, {5, Stream::test, 10}, -1, 1);
  EXPECT_EQ(values(x), values(expected));
  EXPECT_EQ(values(w), std::vector<double>(9, 0.75));
}

TEST_F(Recorded, WorkOfOtherThreadsIsDoneAtOnce) {
  const Tensor x = full({9}, 1, DType::f32, kCuda), y = full({9}, 5, DType::f32, kCuda);
  Tensor freed = full({100}, 3, DType::f32, kCuda), kept;
  std::vector<double> sums;
  cuda::Graph graph(0, [&] {
    copy(y, y * 2);
    std::thread([&] {
      sums = values(freed + 1);
      freed = {};
      kept = x * 7;
    }).join();
    copy(x, x + y);
  });
  EXPECT_EQ(sums, std::vector<double>(100, 4));
  EXPECT_EQ(values(kept), std::vector<double>(9, 7));
  EXPECT_EQ(values(y), std::vector<double>(9, 5));
  for (int i = 0; i < 2; ++i) graph.launch();
  EXPECT_EQ(values(x), std::vector<double>(9, 1 + 10 + 20));
  EXPECT_EQ(values(kept), std::vector<double>(9, 7));
}

TEST_F(Recorded, CallsAreMadeBetweenTheWorkBeforeAndAfter) {
  const Tensor x = full({3}, 1, DType::f32, kCuda), y = zeros({3}, DType::f32, kCuda);
  std::vector<double> seen;
  at_each_launch([&] { seen.push_back(-1); });  // nothing is recorded: at once
  cuda::Graph graph(0, [&] {
    at_each_launch([&] { seen.push_back(0); });
    copy(y, x * 2);
    at_each_launch([&] { seen.push_back(values(y)[0]); });
    at_each_launch([&] { copy(x, y + 5); });
    copy(y, x + y);
    at_each_launch([&] { seen.push_back(values(y)[0]); });
  });
  EXPECT_EQ(seen, std::vector<double>{-1});
  for (int i = 0; i < 2; ++i) graph.launch();
  EXPECT_EQ(seen, (std::vector<double>{-1, 0, 2, 9, 0, 14, 33}));
}

TEST_F(Recorded, AFailedCallEndsTheLaunch) {
  const Tensor x = full({3}, 1, DType::f32, kCuda);
  bool fails = true;
  cuda::Graph graph(0, [&] {
    copy(x, x * 2);
    at_each_launch([&] { RT_CHECK_AS(CommError, !fails, "no more"); });
    copy(x, x * 10);
  });
  EXPECT_EQ(test::message_of<CommError>([&] { graph.launch(); }), "no more");
  EXPECT_EQ(values(x), std::vector<double>(3, 2));
  fails = false;
  graph.launch();
  EXPECT_EQ(values(x), std::vector<double>(3, 40));
}

TEST_F(Recorded, WorkOfAnotherDeviceIsDoneAtOnce) {
  if (runtime(kCuda).device_count() < 2) GTEST_SKIP() << "one CUDA device only";
  const Device second{DeviceType::cuda, 1};
  RandomState from{5, Stream::test, 7};
  const Tensor x({4}, DType::f32, kCuda), there({4}, DType::f32, second), expected({4}, DType::f32, kCuda);
  cuda::Graph graph(0, [&] {
    fill_uniform(x, {0, Stream::tensors, 3, &from}, -1, 1);
    fill_uniform(there, {0, Stream::tensors, 3, &from}, -1, 1);
  });
  fill_uniform(expected, {5, Stream::test, 10}, -1, 1);
  EXPECT_EQ(values(there), values(expected));
  graph.launch();
  EXPECT_EQ(values(x), values(expected));
}

TEST_F(Recorded, TooManyChangingNumbersAreRefused) {
  RandomState from{5, Stream::test, 7};
  const Tensor x({4}, DType::f32, kCuda);
  const std::string text = test::message_of<DeviceError>([&] {
    cuda::Graph(0, [&] {
      for (int i = 0; i < 5000; ++i) fill_uniform(x, {0, Stream::tensors, 3, &from}, -1, 1);
    });
  });
  EXPECT_NE(text.find("more than 65536 bytes of arguments that change"), std::string::npos) << text;
}

}  // namespace
}  // namespace ringtape
