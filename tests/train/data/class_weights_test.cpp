// Weights of classes in the loss of a training: which they are, and that the loss of a batch is the same however it is
// divided.
#include "train/data/class_weights.h"

#include <numeric>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "nn/nn.h"
#include "tests/support/comm_worlds.h"
#include "tests/support/jobs.h"
#include "tests/support/support.h"
#include "train/loop/step.h"
#include "train/settings/run_setup.h"

namespace ringtape {
namespace {

using namespace test;
using Numbers = std::vector<double>;

// Images of 1x1 with these labels.
Dataset labelled(const std::vector<int64_t>& labels, int classes) {
  Dataset set;
  const auto n = int64_t(labels.size());
  set.name = "labelled", set.classes = classes, set.mean = {0.5f}, set.deviation = {0.25f};
  set.images = zeros({n, 1, 1, 1}, DType::u8), set.labels = from_host(labels, {n});
  for (int64_t i = 0; i < n; ++i) set.images.data<uint8_t>()[i] = uint8_t(37 * i + 11);
  return set;
}

const std::vector<int64_t> kLabels = {0, 0, 2, 0, 1, 0, 0, 2, 0, 1, 0, 0, 0, 0, 2, 0, 0, 0, 0};  // 14, 2, 3

TEST(ClassWeights, AreThoseOfTheTrainingImages) {
  const Dataset set = labelled(kLabels, 3);
  const std::vector<int64_t> all = all_samples(set);
  EXPECT_EQ(class_weights("none", set, all), Numbers());
  EXPECT_EQ(class_weights("balanced", set, all), (Numbers{19 / (3 * 14.0), 19 / (3 * 2.0), 19 / (3 * 3.0)}));
  EXPECT_EQ(class_weights("balanced", set, {0, 1, 2, 4}), (Numbers{4 / (3 * 2.0), 4 / 3.0, 4 / 3.0}));
  EXPECT_EQ(class_weights("balanced", set, {0, 1, 2}), (Numbers{3 / (2 * 2.0), 0, 3 / 2.0}));  // none of class 1
  EXPECT_EQ(class_weights("1,0,2.5", set, all), (Numbers{1, 0, 2.5}));
}

TEST(ClassWeights, RefusesWhatIsNone) {
  const Dataset set = labelled(kLabels, 3);
  const auto refusal = [&](const std::string& text) -> std::string {
    try {
      (void)class_weights(text, set, all_samples(set));
    } catch (const UsageError& e) {
      return e.what();
    }
    return "none";
  };
  for (const char* bad : {"", "1,", ",1", "1,-1,1", "nan,1,1", "1,inf,1", "1;1;1", "balance", "1, 2, 3", "1e999,1,1"})
    EXPECT_MENTIONS(refusal(bad), "--class-weights: expected none, balanced or a number from 0 up for each class");
  EXPECT_MENTIONS(refusal("0,0,0"), "--class-weights 0,0,0: all are 0, so that nothing would be learned");
  EXPECT_MENTIONS(refusal("1,2"), "--class-weights 1,2: expected 3 numbers, one for each class of labelled, got 2");
  Dataset more = set;
  more.classes = 4;
  EXPECT_THROW((void)class_weights("0,0,0,1", more, all_samples(more)), UsageError);  // of no image
}

// Whoever loads which part of a batch.
TEST(ClassWeights, ALoaderKnowsTheSumOfEachBatch) {
  const Dataset set = labelled(kLabels, 3);
  const Numbers weights = {0.5, 4, 0};
  for (const bool mixed : {false, true})
    for (const int ranks : {1, 3})
      for (const int workers : {0, 2}) {
        std::vector<double> expected(4), found;
        for (int rank = 0; rank < ranks; ++rank) {
          const Loader loader(set, all_samples(set),
                              {.batch_size = 5,
                               .shuffle = true,
                               .seed = 3,
                               .workers = workers,
                               .changes = {.mixing = {.mixup = mixed ? 0.4 : 0}},
                               .rank = rank,
                               .ranks = ranks,
                               .class_weights = weights});
          found.clear();
          for (const Batch& batch : loader.epoch(1)) {
            for (const int64_t y : batch.y.span<int64_t>())
              expected[size_t(batch.index)] += weights[size_t(y)] / double(batch.global_size);
            found.push_back(batch.labels().rows({0, std::min<int64_t>(1, batch.y.size())}).scale.item());
          }
        }
        ASSERT_EQ(found.size(), 4u);
        for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(found[i], 1 / expected[i], 1e-12) << i;
      }
  const Loader plain(set, all_samples(set), {.batch_size = 5});
  EXPECT_FALSE(plain.epoch(0).next()->labels().scale.defined());
  const Loader nothing(set, {2, 4, 7}, {.batch_size = 2, .class_weights = {1, 1, 0}});
  EXPECT_EQ(nothing.epoch(0, 1).next()->scale.item(), 0);  // of an image that does not count
}

// In double precision, with label smoothing.
struct Net {
  nn::Sequential model;
  std::unique_ptr<Step> step;
  Net(const Numbers& weights, comm::ProcessGroup& group, int64_t parts, int64_t shares) {
    manual_seed(4);
    model.add<nn::Linear>(6, 8).add<nn::ReLU>().add<nn::Linear>(8, 3);
    nn::cast_to(model, DType::f64);
    TrainOptions o;
    o.step.optimizer.name = "sgd", o.step.accumulate = parts, o.parallel.shares = shares;
    step = std::make_unique<Step>(model, cross_entropy_of(model, nullptr, 0.1, weights), o.step, o.execution, group,
                                  o.parallel);
  }
  Numbers values() {
    Numbers out;
    for (const nn::Named& p : nn::named_parameters(model))
      for (const double x : test::values(*p.tensor)) out.push_back(x);
    return out;
  }
};

// -> the loss and the weights after a step.
Numbers stepped(comm::ProcessGroup& group, bool mixed, int64_t parts = 1, int64_t shares = 0) {
  const Numbers weights = {0.5, 3, 1.25};
  Net net(weights, group, parts, shares);
  manual_seed(8);
  const auto n = int64_t(kLabels.size());
  const Tensor x = randn({n, 6}, 0, 1, DType::f64), y = from_host(kLabels, {n});
  std::vector<int64_t> before = kLabels;
  std::rotate(before.begin(), before.end() - 1, before.end());
  const Tensor other = from_host(before, {n}), w = from_host(weights, {3});
  const double sum = std::accumulate(kLabels.begin(), kLabels.end(), 0.0,
                                     [&](double s, int64_t label) { return s + weights[size_t(label)]; });
  const auto whole = [&](const Tensor& labels) {
    return cross_entropy(net.model(x), labels, {.label_smoothing = 0.1, .weight = w}).item();
  };
  const double expected = mixed ? 0.3 * whole(y) + 0.7 * whole(other) : whole(y);
  const Part own = own_rows(n, {.rank = group.rank(), .ranks = group.size(), .shares = shares});
  const Labels labels = Labels(y, mixed ? other : Tensor(), 0.3, from_host(Numbers{double(n) / sum}, {})).rows(own);
  const Step::Result result =
      net.step->run(contiguous(slice(x, 0, own.begin, own.end)), labels, 0.1, {}, {.samples = n});
  EXPECT_NEAR(result.loss.item(), expected, 1e-12);
  Numbers out = net.values();
  out.push_back(result.loss.item());
  return out;
}

TEST(ClassWeights, TheLossOfABatchIsDividedByTheSumOfItsWeights) {
  for (const bool mixed : {false, true}) {
    const Numbers alone = stepped(comm::alone(), mixed);
    const auto expect_near = [&](const Numbers& found) {
      ASSERT_EQ(found.size(), alone.size());
      for (size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], alone[i], 1e-12) << i;
    };
    expect_near(stepped(comm::alone(), mixed, 4));
    expect_near(stepped(comm::alone(), mixed, 1, 3));
    for (const int ranks : {2, 3, 5})
      EXPECT_EQ(comm::test::on_group(comm::test::kWorlds[0], ranks,
                                     [&](comm::ProcessGroup& group) {
                                       for (const int64_t parts : {1, 2}) expect_near(stepped(group, mixed, parts));
                                     }),
                "");
  }
}

// Without the sum of a larger batch: as torch.nn.CrossEntropyLoss.
TEST(ClassWeights, AStepOfOnesOwnDividesByItsSum) {
  const Numbers weights = {0.5, 3, 1.25};
  Net net(weights, comm::alone(), 1, 0);
  const Tensor x = ones({3, 6}, DType::f64), y = from_host(std::vector<int64_t>{0, 1, 1}, {3});
  const Tensor losses = cross_entropy(
      net.model(x), y, {.label_smoothing = 0.1, .weight = from_host(weights, {3}), .reduction = LossReduction::sum});
  EXPECT_NEAR(net.step->run(x, y, 0.1).loss.item(), losses.item() / 6.5, 1e-12);
}

class ClassWeightsRun : public JobTest {};

TEST_F(ClassWeightsRun, AreKeptWithTheRun) {
  const std::string base =
      "ringtape train --train-size 300 --test-size 50 --val-size 60 --batch-size 20 --hidden 16 --epochs 3 --mixup 0.3 "
      "--label-smoothing 0.1 --threads 1 --device cpu --workers 0 ";
  ASSERT_EQ(run(base + "--run plain"), 0) << log();
  ASSERT_EQ(run(base + "--class-weights balanced --run whole"), 0) << log();
  EXPECT_FALSE(bytes("whole") == bytes("plain"));
  ASSERT_EQ(run(base + "--class-weights balanced --devices 3 --run ranks"), 0) << log();
  EXPECT_LE(difference("ranks", "whole"), 1e-6);
  ASSERT_EQ(run(base + "--class-weights balanced --max-steps 20 --run parts"), 0) << log();
  EXPECT_EQ(run("ringtape train --resume --run parts --class-weights none --max-steps 0"), 2);
  EXPECT_MENTIONS(log(), "--class-weights none");
  ASSERT_EQ(run("ringtape train --resume --run parts --max-steps 0"), 0) << log();
  EXPECT_TRUE(bytes("parts") == bytes("whole"));
  EXPECT_EQ(run(base + "--class-weights 1,2,3 --run wrong"), 2);
  EXPECT_MENTIONS(log(), "--class-weights 1,2,3: expected 10 numbers, one for each class of shapes");
  EXPECT_EQ(run(base + "--class-weights heavy --run wrong"), 2);
  EXPECT_MENTIONS(log(), "--class-weights: expected none, balanced or a number");
}

}  // namespace
}  // namespace ringtape
