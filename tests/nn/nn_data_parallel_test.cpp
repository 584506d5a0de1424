// A model on several devices of this process.
#include <gtest/gtest.h>

#include <algorithm>

#include "autograd/create.h"
#include "nn/data_parallel.h"
#include "nn/nn.h"
#include "tests/support/support.h"

namespace ringtape::nn {
namespace {

using test::message_of;
using test::values;

const comm::Devices kThree = {{DeviceType::cpu, 0}, {DeviceType::cpu, 1}, {DeviceType::cpu, 2}};

std::unique_ptr<Module> make() {
  auto model = std::make_unique<Sequential>();
  model->add<Linear>(4, 6).add<Tanh>().add<Linear>(6, 3);
  cast_to(*model, DType::f64);
  return model;
}
Tensor input(int64_t n) { return randn({n, 4}, 0, 1, DType::f64); }

std::vector<std::vector<double>> gradients(Module& model) {
  std::vector<std::vector<double>> out;
  for (const Named& p : named_parameters(model)) out.push_back(values(grad(*p.tensor)));
  return out;
}

TEST(NnDataParallel, OutputsAndGradientsAreTheModels) {
  for (const bool persistent : {false, true})
    for (const int64_t rows : {7, 2}) {  // fewer rows than devices, too
      manual_seed(1);
      const auto model = make();
      DataParallel spread(*model, make, kThree, {.persistent = persistent});
      const Tensor x = input(rows);
      const Tensor y = (*model)(x);
      backward(sum(y * y));
      const auto expected = gradients(*model);
      for (int again = 0; again < 2; ++again) {
        for (const Named& p : named_parameters(*model)) zero_grad(*p.tensor);
        const Tensor z = spread(x);
        test::expect_close(z, y, 1e-14, 0, "outputs");
        backward(sum(z * z));
        const auto found = gradients(*model);
        for (size_t i = 0; i < found.size(); ++i)
          for (size_t j = 0; j < found[i].size(); ++j) EXPECT_NEAR(found[i][j], expected[i][j], 1e-13);
      }
      backward(sum(spread(x) * 0.0) + sum((*model)(x)*0.0));  // adds nothing, from both
      EXPECT_NEAR(gradients(*model)[0][0], expected[0][0], 1e-13);
    }
}

// What Lightning's training_step_end gets: the replicas' losses, and their outputs one after the other.
TEST(NnDataParallel, LossesOfReplicasAndGatheredOutputsForAReduction) {
  manual_seed(2);
  const auto model = make();
  DataParallel spread(*model, make, kThree);
  const Tensor x = input(6), y = from_host(std::vector<int64_t>{0, 1, 2, 2, 1, 0}, {6});
  const Tensors out = spread.forward({x, y}, [](Module& replica, const Tensors& rows) {
    const Tensor logits = replica(rows[0]);
    return Tensors{cross_entropy(logits, rows[1]), logits, reshape(rows[1], {rows[1].size(), 1})};
  });
  ASSERT_EQ(out.size(), 3u);
  EXPECT_EQ(out[0].shape(), Shape({3}));
  EXPECT_EQ(out[1].shape(), Shape({6, 3}));
  EXPECT_EQ(values(reshape(out[2], {6})), values(y));
  EXPECT_FALSE(requires_grad(out[1]));
  backward(mean(out[0]));
  const auto spread_gradients = gradients(*model);
  for (const Named& p : named_parameters(*model)) zero_grad(*p.tensor);
  const Tensor whole = cross_entropy((*model)(x), y);
  EXPECT_NEAR(mean(out[0]).item(), whole.item(), 1e-14);
  backward(whole);
  const auto expected = gradients(*model);
  for (size_t i = 0; i < expected.size(); ++i)
    for (size_t j = 0; j < expected[i].size(); ++j) EXPECT_NEAR(spread_gradients[i][j], expected[i][j], 1e-14);
}

TEST(NnDataParallel, PersistentReplicasGetWhatHasChanged) {
  for (const bool persistent : {false, true}) {
    const auto model = make();
    DataParallel spread(*model, make, kThree, {.persistent = persistent});
    const NoGrad no_grad;
    const Tensor x = input(6);
    for (int i = 0; i < 5; ++i) spread(x);
    EXPECT_EQ(spread.traffic().parameters.transfers, persistent ? 8 : 40);  // 4 tensors to 2 devices
    EXPECT_EQ(spread.traffic().inputs.transfers, 10);
    EXPECT_EQ(spread.traffic().inputs.bytes, 5 * 4 * 4 * 8);
    EXPECT_EQ(spread.traffic().outputs.bytes, 5 * 4 * 3 * 8);
    Tensor bias = *named_parameters(*model)[1].tensor;
    bias.data<double>()[0] = 5;
    bias.storage()->written_by("test");
    test::expect_close(spread(x), (*model)(x), 1e-14, 0, "behind a change");
    EXPECT_EQ(spread.traffic().parameters.transfers, persistent ? 10 : 48);
  }
}

TEST(NnDataParallel, RunningStatisticsAreThoseOfReplicaZero) {
  const auto with_norm = [] {
    auto model = std::make_unique<Sequential>();
    model->add<BatchNorm>(2);
    return model;
  };
  const Tensor x = randn({9, 2}, 3, 2);
  for (const bool synchronized : {false, true}) {
    const auto model = with_norm(), alone = with_norm();
    DataParallel spread(*model, with_norm, kThree, {.synchronize_batch_norm = synchronized});
    spread(x);
    (*alone)(synchronized ? x : slice(x, 0, 0, 3));
    test::expect_close(static_cast<BatchNorm&>((*model)[0]).running().mean,
                       static_cast<BatchNorm&>((*alone)[0]).running().mean, 1e-6, 0, "mean");
    test::expect_close(static_cast<BatchNorm&>((*model)[0]).running().var,
                       static_cast<BatchNorm&>((*alone)[0]).running().var, 1e-6, 0, "var");
  }
}

TEST(NnDataParallel, ReplicasAreInTheModelsMode) {
  const auto with_dropout = [] {
    auto model = std::make_unique<Sequential>();
    model->add<Linear>(4, 6).add<Dropout>(0.5);
    return model;
  };
  const auto model = with_dropout();
  DataParallel spread(*model, with_dropout, kThree);
  const Tensor x = randn({6, 4});
  for (const bool training : {false, true, false}) {
    model->train(training);
    const std::vector<double> y = values(spread(x));
    EXPECT_EQ(std::count(y.begin(), y.end(), 0.0) > 0, training);
  }
}

TEST(NnDataParallel, ErrorsNameTheReplica) {
  const auto model = make();
  DataParallel spread(*model, make, kThree, {.synchronize_batch_norm = true});
  const std::string message = message_of<ShapeError>([&] {
    spread.forward({input(6)}, [](Module& replica, const Tensors& rows) {
      RT_CHECK_AS(ShapeError, rows[0].device().index != 1, "no more");
      return Tensors{replica(rows[0])};
    });
  });
  EXPECT_EQ(message, "in replica 1 on cpu:1: no more");
  const auto make_another = [] { return std::make_unique<Linear>(2, 3); };
  EXPECT_EQ(message_of<UsageError>([&] { DataParallel(*model, make_another, kThree); }),
            "DataParallel: the parameters or buffers of a new replica differ from those of the model");
  EXPECT_EQ(message_of<UsageError>([&] { DataParallel(*model, make, {}); }),
            "DataParallel: expected at least one device");
}

}  // namespace
}  // namespace ringtape::nn
