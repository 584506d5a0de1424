// Tests of a network on the CPU: it is prepared for each pass over the images.
#include "train/loop/evaluate.h"

#include "autograd/create.h"
#include "autograd/inplace.h"
#include "autograd/ops.h"
#include "tests/support/settings.h"
#include "tests/support/support.h"
#include "tests/support/trained_models.h"
#include "train/evaluation/features.h"
#include "train/loop/learner.h"
#include "train/settings/run_setup.h"

namespace ringtape {
namespace {

using test::same_bytes;

class EvaluateTest : public testing::Test {
 protected:
  EvaluateTest() {
    TrainOptions o;
    test::set(o,
              {{"data", "shapes"}, {"train-size", "16"}, {"test-size", "40"}, {"model", "resnet18"}, {"width", "6"}});
    o.run.json = true;
    setup_ = std::make_unique<RunSetup>(resolve(o));
    test::pretend_training(*setup_->model, setup_->spec.image);
  }
  Tensor logits(const std::vector<int64_t>& samples, const EvalOptions& options = {}) const {
    Tensors out;
    evaluate(*setup_, setup_->data.test, samples, "test", options, &out);
    return concat(out);
  }
  Tensor features(const std::vector<int64_t>& samples) const {
    nn::Classifier& network = classifier(*setup_->model, "resnet18");
    return embed(
               *setup_->model, [&](const Tensor& x) { return network.features(x); }, setup_->data.test, samples)
        .x;
  }
  // Of the network itself, image by image.
  Tensor by_forward(const std::vector<int64_t>& samples) const {
    const NoGrad no_grad;
    const nn::ModeGuard mode(*setup_->model, false);
    const Loader loader(setup_->data.test, samples, {.batch_size = int64_t(samples.size())});
    return (*setup_->model)(loader.epoch(0).next()->x);
  }
  static void expect_near(const Tensor& y, const Tensor& want) {
    test::expect_close(y, want, 0, 1e-5 * max(abs(want)).item(), "logits");
  }

  std::unique_ptr<RunSetup> setup_;
};

TEST_F(EvaluateTest, GivesTheLogitsOfTheNetworkAsItIsNow) {
  const NoGrad no_grad;
  const std::vector<int64_t> all = all_samples(setup_->data.test);
  const Tensor before = logits(all);
  expect_near(before, by_forward(all));
  for (const nn::Named& p : nn::named_parameters(*setup_->model))
    if (p.tensor->rank() == 1) mul_(*p.tensor, 0.5);  // as a step changes them
  const Tensor after = logits(all);
  expect_near(after, by_forward(all));
  EXPECT_FALSE(same_bytes(after, before));
  EXPECT_TRUE(setup_->model->training());
}

TEST_F(EvaluateTest, GivesAnImageTheSameBytesInAnyBatch) {
  const std::vector<int64_t> all = all_samples(setup_->data.test);
  const Tensor y = logits(all), x = features(all);
  for (const std::vector<int64_t>& some : {std::vector<int64_t>{7}, {3, 39, 12}, {20, 21, 22, 23, 24, 25}}) {
    const Tensor rows = from_host(some, {int64_t(some.size())});
    EXPECT_TRUE(same_bytes(logits(some), index_select(y, 0, rows))) << some.size() << " images";
    EXPECT_TRUE(same_bytes(features(some), index_select(x, 0, rows))) << some.size() << " images";
  }
  EXPECT_TRUE(same_bytes(features(all), x));
}

TEST_F(EvaluateTest, AveragesOverCopiesAndComputesIn16Bits) {
  const std::vector<int64_t> all = all_samples(setup_->data.test);
  const Tensor y = logits(all);
  EXPECT_FALSE(same_bytes(logits(all, {.copies = "flip"}), y));
  const Tensor narrow = logits(all, {.precision = DType::bf16});
  EXPECT_EQ(narrow.dtype(), DType::bf16);
  test::expect_close(cast(narrow, DType::f32), y, 0, 0.05 * max(abs(y)).item(), "bf16");
}

}  // namespace
}  // namespace ringtape
