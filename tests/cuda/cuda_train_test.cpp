// Whole training steps on CUDA: the same weights as on the CPU.
#include <cmath>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "comm/process_group.h"
#include "comm/transport/gpu.h"
#include "core/cuda/graph.h"
#include "core/runtime.h"
#include "kernels/copy.h"
#include "kernels/fill.h"
#include "nn/nn.h"
#include "tests/support/cuda_support.h"
#include "tests/support/settings.h"
#include "tests/support/support.h"
#include "tests/support/thread_ranks.h"
#include "train/evaluation/metrics.h"
#include "train/evaluation/snapshot_parts.h"
#include "train/optim/lars.h"
#include "train/optim/sgd.h"
#include "train/settings/run_setup.h"

namespace ringtape {
namespace {

using test::kCuda;
using test::values;

struct Trained {
  std::vector<std::pair<std::string, std::vector<double>>> weights;
  Metrics train, test;
};

Trained train(const std::string& device, const std::string& optimizer, double dropout = 0, TrainOptions options = {},
              double lr = 0.1) {
  options.execution.device = device;
  if (options.execution.precision.empty()) options.execution.precision = "f32";
  options.step.optimizer.name = optimizer;
  options.schedule.lr = optimizer == "adam" ? 1e-4 : lr;
  test::set(options, {{"dropout", text(dropout)}, {"train-size", "400"}, {"test-size", "100"}});
  options.data.val_size = 0;
  options.trainer.batch_size = 16, options.trainer.epochs = 1, options.trainer.limit_train_batches = 20,
  options.execution.threads = 1;
  RunSetup task(resolve(options));
  Trainer trainer = make_trainer(task);
  Trained out;
  trainer.fit([&](const Metrics& m) { (m.split == "train" ? out.train : out.test) = m; });
  EXPECT_EQ(trainer.steps(), 20);
  for (const nn::Named& p : nn::named_parameters(*task.model)) {
    EXPECT_EQ(p.tensor->device(), parse_device(device));
    out.weights.emplace_back(p.name, values(*p.tensor));
  }
  return out;
}

// tolerance: of losses, and of the weights' distance beside their norm.
void expect_same(const Trained& cuda, const Trained& cpu, double tolerance) {
  EXPECT_NEAR(*cuda.train.loss, *cpu.train.loss, tolerance);
  EXPECT_NEAR(*cuda.test.loss, *cpu.test.loss, tolerance);
  EXPECT_NEAR(*cuda.test.top1, *cpu.test.top1, 0.01) << "one of 100 samples may lie between two classes";
  ASSERT_EQ(cuda.weights.size(), cpu.weights.size());
  double distance = 0, norm = 0;
  for (size_t i = 0; i < cpu.weights.size(); ++i)
    for (size_t j = 0; j < cpu.weights[i].second.size(); ++j) {
      distance = std::hypot(distance, cuda.weights[i].second[j] - cpu.weights[i].second[j]);
      norm = std::hypot(norm, cpu.weights[i].second[j]);
    }
  EXPECT_LE(distance, tolerance * norm);
}

// Adam moves each weight by about the rate, whatever its gradient: one of about 0 may go either way.
constexpr double kAdam = 2e-4;

TEST(CudaTraining, TwentyStepsOfTheMlpEqualTheCpuWithSgd) {
  RT_NEEDS_CUDA();
  expect_same(train("cuda:0", "sgd"), train("cpu:0", "sgd"), 1e-5);
}

TEST(CudaTraining, TwentyStepsOfTheMlpEqualTheCpuWithAdam) {
  RT_NEEDS_CUDA();
  expect_same(train("cuda:0", "adam"), train("cpu:0", "adam"), kAdam);
}

TEST(CudaTraining, TwentyStepsOfTheMlpEqualTheCpuWithLars) {
  RT_NEEDS_CUDA();
  TrainOptions options;
  options.step.optimizer.of("lars").as<Lars::Options>().weight_decay = 1e-3;
  expect_same(train("cuda:0", "lars", 0, options), train("cpu:0", "lars", 0, options), 1e-5);
}

TEST(CudaTraining, DropoutDrawsTheSameNumbers) {
  RT_NEEDS_CUDA();
  expect_same(train("cuda:0", "adam", 0.3), train("cpu:0", "adam", 0.3), kAdam);
}

TEST(CudaTraining, ClippedAccumulatedAveragedStepsEqualTheCpu) {
  RT_NEEDS_CUDA();
  TrainOptions options;
  options.step.clip_grad_norm = 0.5, options.step.accumulate = 3, options.step.ema = 0.9;
  expect_same(train("cuda:0", "sgd", 0, options), train("cpu:0", "sgd", 0, options), 1e-5);
}

// At a rate at which the loss falls: where it grows, differences of rounding grow with it, and cuBLASLt's products are
// rounded in other places.
TEST(CudaTraining, SixteenBitsTrainNearlyAsOnTheCpu) {
  RT_NEEDS_CUDA();
  for (const char* precision : {"bf16", "f16"}) {
    TrainOptions options;
    options.execution.precision = precision;
    const Trained cuda = train("cuda:0", "sgd", 0, options, 0.01), cpu = train("cpu:0", "sgd", 0, options, 0.01);
    EXPECT_NEAR(*cuda.train.loss, *cpu.train.loss, 0.005) << precision;
    EXPECT_NEAR(*cuda.test.loss, *cpu.test.loss, 0.005) << precision;
  }
}

// An MLP with its optimizer on a device, and a batch in a fixed place.
struct Workshop {
  Device device;
  nn::Sequential model;
  Tensor x{Shape{16, 48}, DType::f32, device}, y{Shape{16}, DType::i64, device};
  std::unique_ptr<FlatParameters> parameters;
  std::unique_ptr<Optimizer> optimizer;

  explicit Workshop(Device d = kCuda, const char* rule = "sgd") : device(d) {
    manual_seed(3);
    model.add<nn::Linear>(48, 32).add<nn::ReLU>().add<nn::Linear>(32, 10);
    if (device != Device{}) nn::move_to(model, device);
    parameters = std::make_unique<FlatParameters>(model);
    optimizer = make_optimizer(Selection(optimizers(), rule), *parameters);
  }
  void load(uint64_t seed) {
    Tensor images({16, 48}), labels({16}, DType::i64);
    fill_uniform(images, RandomState{seed, Stream::test, 0}, -1, 1);
    for (int64_t i = 0; i < 16; ++i) labels.data<int64_t>()[i] = int64_t(seed + uint64_t(i)) % 10;
    copy(x, to(images, device));
    copy(y, to(labels, device));
  }
  Tensor logits, loss;
  void step() {
    logits = model(x);
    loss = cross_entropy(logits, y);
    optimizer->zero_grad();
    backward(loss);
    optimizer->step(0.1);
  }
};

// Muon's small singular values have the noise of rounding.
TEST(CudaTraining, StepsOfEveryOptimizerEqualTheCpu) {
  RT_NEEDS_CUDA();
  for (const OptimizerEntry& rule : optimizers()) {
    Workshop cuda(kCuda, rule.name), cpu(Device{}, rule.name);
    for (uint64_t i = 0; i < 5; ++i)
      for (Workshop* shop : {&cuda, &cpu}) shop->load(i), shop->step();
    const std::vector<double> a = values(cuda.parameters->values()), b = values(cpu.parameters->values());
    for (size_t i = 0; i < b.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-4) << rule.name << ' ' << i;
  }
}

#if defined(RINGTAPE_EMULATION_BUILD)
TEST(CudaTraining, NoStepWaitsForItsOwnWork) {
  RT_NEEDS_CUDA();
  Workshop shop;
  Tally tally;
  for (uint64_t i = 0; i < 6; ++i) {
    const size_t before = emulation::queued();
    shop.load(i);
    shop.step();
    const size_t all = emulation::queued() - before;  // of this step
    EXPECT_GE(all, 20u);
    tally.add(shop.loss, shop.logits, shop.y);
    EXPECT_GE(emulation::queued(), all) << "the step before may have been waited for, this one not";
  }
  tally.finish();
  EXPECT_EQ(tally.samples(), 96);
}

TEST(CudaTraining, NoStepWaitsWithALossScaleClippingAndAveraging) {
  RT_NEEDS_CUDA();
  TrainOptions options;
  options.execution.precision = "f16", options.step.clip_grad_norm = 1, options.step.ema = 0.9,
  options.step.accumulate = 2;
  Workshop shop;
  Step step(shop.model, cross_entropy_of(shop.model, nullptr, 0), options.step, options.execution);
  Tally tally;
  for (uint64_t i = 0; i < 6; ++i) {
    const size_t before = emulation::queued();
    shop.load(i);
    const Step::Result result = step.run(shop.x, shop.y, 1e-3);
    const size_t all = emulation::queued() - before;
    EXPECT_GE(all, 40u);
    tally.add(result.loss, result.logits, shop.y);
    EXPECT_GE(emulation::queued(), all);
  }
  tally.finish();
  EXPECT_TRUE(tally.finite());
}
#endif

TEST(CudaTraining, ARecordedStepTrainsAsAnUnrecordedOne) {
  RT_NEEDS_CUDA();
  Workshop plain, recorded;
  for (Workshop* shop : {&plain, &recorded}) {
    shop->load(0);
    shop->step();  // what is made on first use
  }
  cuda::Graph graph(0, [&] { recorded.step(); });
  for (uint64_t i = 1; i < 8; ++i) {
    plain.load(i), recorded.load(i);
    plain.step();
    graph.launch();
    EXPECT_EQ(plain.loss.item(), recorded.loss.item()) << "step " << i;
  }
  EXPECT_EQ(values(plain.parameters->values()), values(recorded.parameters->values()));
}

TEST(CudaTraining, MemoryIsKeptAndReused) {
  RT_NEEDS_CUDA();
  TrainOptions options;
  options.execution.no_graph = true;  // whose memory is returned to the system
  train("cuda:0", "adam", 0, options);
  const MemoryStats once = memory_stats(kCuda);
  train("cuda:0", "adam", 0, options);
  const MemoryStats twice = memory_stats(kCuda);
  EXPECT_EQ(twice.current, once.current);
#if defined(RINGTAPE_EMULATION_BUILD)  // a driver's reuse depends on the time
  EXPECT_EQ(twice.system_allocations, once.system_allocations);
#endif
}

// What ranks say to each other lies on their GPUs.
TEST(CudaTraining, RanksOnGpusCountTogether) {
  RT_NEEDS_CUDA();
  const Dataset data{.name = "made up",
                     .source = "",
                     .images = zeros({6, 2, 2, 1}, DType::u8),
                     .labels = from_host(std::vector<int64_t>{0, 1, 0, 1, 1, 1}, {6}),
                     .classes = 2,
                     .mean = {0},
                     .deviation = {1},
                     .class_names = {"a", "b"}};
  const std::string cause = comm::test::run_threads(2, 1, comm::Seconds(60), [&](comm::Context context) {
    const int rank = context.rank, devices = runtime(kCuda).device_count();
    comm::ProcessGroup group(comm::p2p_transport(std::move(context), {DeviceType::cuda, rank % devices}));
    const Tensors outputs = {from_host(std::vector<float>{1, 0, 1, 0, 0, 1}, {3, 2})};  // a, a, b on each
    Snapshot snapshot;
    add_predictions(snapshot, data, own_part(all_samples(data), group), outputs, group);
    if (rank == 0) {
      EXPECT_EQ(values(snapshot.confusion), (std::vector<double>{1, 1, 3, 1}));
    }
  });
  EXPECT_EQ(cause, "");
}

TEST(CudaTraining, SeveralDevicesAreApart) {
  if (!available({DeviceType::cuda, 1})) GTEST_SKIP() << "no second CUDA device";
  const Trained first = train("cuda:0", "adam"), second = train("cuda:1", "adam");
  expect_same(second, first, 0);
}

}  // namespace
}  // namespace ringtape
