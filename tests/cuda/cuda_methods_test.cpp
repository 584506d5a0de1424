// Self-supervised methods on CUDA, their views and kNN too: the same as on the CPU.
#include "tests/support/cuda_support.h"
#include "tests/support/settings.h"
#include "tests/support/support.h"
#include "train/settings/run_setup.h"

#if defined(RINGTAPE_EMULATION_BUILD)
#include "autograd/create.h"
#endif

namespace ringtape {
namespace {

using test::kCuda;

TrainOptions small(const std::string& method) {
  TrainOptions o;
  o.method.name = method, o.model.name = test::model_for(method, "mlp"), o.step.optimizer.name = "sgd";
  test::set(o, {{"hidden", "8"},
                {"width", "8"},
                {"heads", "2"},
                {"depth", "2"},
                {"decoder-width", "8"},
                {"decoder-heads", "2"},
                {"projection-hidden", "12"},
                {"projection-dim", "6"},
                {"prediction-hidden", "4"},
                {"prototypes", "5"},
                {"queue", "32"},
                {"bn-splits", "2"},
                {"barlow-statistics", "exact"},
                {"train-size", "48"},
                {"test-size", "20"}});
  o.trainer.batch_size = 16, o.trainer.epochs = 1, o.evaluation.knn.k = 5;
  o.views.first.blur = 0.5, o.views.solarize_second = 0.5;
  o.schedule.lr = 0.01;
  o.execution.threads = 1;
  return o;
}

std::vector<std::string> names() {
  std::vector<std::string> out;
  for (const nn::MethodEntry& entry : nn::methods()) out.emplace_back(entry.name);
  return out;
}

struct Trained {
  std::vector<std::pair<std::string, Tensor>> weights;  // and what the method keeps
  double loss = 0, spread = 0, top1 = 0;
};

Trained train(TrainOptions o, const std::string& device) {
  o.execution.device = device, o.execution.precision = "f32";
  RunSetup task(resolve(o));
  Trainer trainer = make_trainer(task);
  Trained out;
  trainer.fit([&](const Metrics& m) {
    if (m.split == "train") out.loss = *m.loss, out.spread = *m.spread;
    else out.top1 = *m.top1;
  });
  for (const nn::Named& p : nn::named_parameters(*task.model))
    out.weights.emplace_back(p.name, to(p.tensor->detach(), Device{}));
  for (const nn::Named& b : nn::named_buffers(*task.model))
    out.weights.emplace_back(b.name, to(b.tensor->detach(), Device{}));
  return out;
}

class CudaMethods : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, CudaMethods, testing::ValuesIn(names()), [](const auto& info) { return info.param; });

TEST_P(CudaMethods, TrainAsOnTheCpu) {
  RT_NEEDS_CUDA();
  const Trained cpu = train(small(GetParam()), "cpu"), cuda = train(small(GetParam()), "cuda:0");
  EXPECT_NEAR(cuda.loss, cpu.loss, 1e-4 * std::max(1.0, std::abs(cpu.loss)));
  EXPECT_NEAR(cuda.spread, cpu.spread, 1e-4);
  EXPECT_NEAR(cuda.top1, cpu.top1, 0.051);  // one image of 20 may be as near to two
  for (size_t i = 0; i < cpu.weights.size(); ++i)
    test::expect_close(cuda.weights[i].second, cpu.weights[i].second, 1e-3, 1e-4, cpu.weights[i].first);
}

#if defined(RINGTAPE_EMULATION_BUILD)
TEST_P(CudaMethods, NoStepWaitsForItsOwnWork) {
  RT_NEEDS_CUDA();
  TrainOptions o = small(GetParam());
  o.execution.device = "cuda:0";
  RunSetup task(resolve(o));
  const auto learner = make_learner(o, task, {all_samples(task.data.train), {}}, 1);
  Step step(*task.model, learner->objective(), o.step, o.execution);
  const Tensors views = {rand({16, 32, 32, 3}, -1, 1, DType::f32, kCuda),
                         rand({16, 32, 32, 3}, -1, 1, DType::f32, kCuda)};
  const Tensor labels = full({16}, 0, DType::i64, kCuda);
  for (int i = 0; i < 3; ++i) {
    const size_t before = emulation::queued();
    learner->begin_step({i, 3});
    step.run(views, labels, 0.01);
    if (i > 0) {
      EXPECT_GE(emulation::queued(), before + 20) << "step " << i;
    }
  }
}
#endif

}  // namespace
}  // namespace ringtape
