// How many calls of the CUDA runtime a training makes for each step, with its loader and its metrics: the same on every
// GPU, so that the emulation can count them. Each test prints what it counted.
#include <cstdio>
#include <map>

#include "comm/process_group.h"
#include "comm/transport/gpu.h"
#include "tests/support/cuda_support.h"
#include "tests/support/settings.h"
#include "tests/support/thread_ranks.h"
#include "train/settings/run_setup.h"

namespace ringtape {
namespace {

#if defined(RINGTAPE_EMULATION_BUILD)

using Calls = std::map<std::string, uint64_t>;

constexpr int64_t kFrom = 6, kTo = 14;  // steps, of those of a training

// Of all ranks, counted by rank 0.
struct CountCalls : Callback {
  static inline Calls at_from, at_to;
  bool counts = false;

  void begins(const Task&, comm::ProcessGroup& group) override { counts = group.rank() == 0; }
  void after_step(int64_t step, const Step::Result&) override {
    if (counts && step == kFrom) at_from = emulation::calls();
    if (counts && step == kTo) at_to = emulation::calls();
  }
};
const RegisterCallback count_calls({.name = "count_calls",
                                    .summary = "counts calls of the CUDA runtime",
                                    .make = [](const Settings&) {
                                      return std::unique_ptr<Callback>(std::make_unique<CountCalls>());
                                    }});

TrainOptions small(const std::string& method) {
  TrainOptions o;
  o.execution.device = "cuda:0", o.execution.threads = 1;
  o.method.name = method, o.model.name = "mlp", o.step.optimizer.name = "sgd";
  test::set(o, {{"hidden", "16"},
                {"projection-hidden", "16"},
                {"projection-dim", "16"},
                {"prediction-hidden", "16"},
                {"prototypes", "5"},
                {"queue", "32"},
                {"bn-splits", "4"},
                {"callback", "count_calls"},
                {"train-size", "128"},
                {"test-size", "20"}});
  o.data.val_size = 0;
  o.trainer.batch_size = 8, o.trainer.epochs = 1;
  o.schedule.lr = 0.01, o.evaluation.knn.k = 5;
  return o;
}

void train(const TrainOptions& o, comm::ProcessGroup& group) {
  RunSetup task(resolve(o));
  Trainer trainer = make_trainer(task, group);
  trainer.fit([](const Metrics&) {});
  EXPECT_GT(trainer.steps(), kTo);
}

// Those of a step of the last training, on average over `ranks`; prints them.
std::map<std::string, double> calls_of_a_step(const std::string& what, int ranks) {
  std::map<std::string, double> out;
  double all = 0;
  std::string text;
  for (const auto& [name, count] : CountCalls::at_to) {
    const double more = double(count - CountCalls::at_from[name]) / double(kTo - kFrom) / ranks;
    if (more == 0) continue;
    out[name] = more, all += more;
    text += concat(", ", name, ' ', more);
  }
  std::printf("%s: %g calls a step%s\n", what.c_str(), all, text.c_str());
  out["all"] = all;
  return out;
}

std::vector<std::string> names() {
  std::vector<std::string> out = {"none"};
  for (const nn::MethodEntry& entry : nn::methods())
    if (entry.repeats) out.emplace_back(entry.name);
  return out;
}

class StepCalls : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, StepCalls, testing::ValuesIn(names()), [](const auto& info) { return info.param; });

TEST_P(StepCalls, AreFewWhereAGraphRepeatsThem) {
  RT_NEEDS_CUDA();
  const std::string method = GetParam() == "none" ? "" : GetParam();
  train(small(method), comm::alone());
  auto calls = calls_of_a_step(GetParam(), 1);
  EXPECT_LE(calls["all"], 12);
  EXPECT_EQ(calls["cudaGraphLaunch"], 1);
}

// Those of a process alone, a launch more and, between the two, what sums the gradients.
TEST(StepCallsOfRanks, AreFewWhereGraphsRepeatThem) {
  RT_NEEDS_CUDA();
  const std::string cause = comm::test::run_threads(2, 1, comm::Seconds(120), [](comm::Context context) {
    const Device device{DeviceType::cuda, context.rank % runtime(test::kCuda).device_count()};
    comm::ProcessGroup group(comm::p2p_transport(std::move(context), device));
    TrainOptions o = small("");
    o.execution.device = device.str(), o.parallel.strategy.name = "ddp";
    train(o, group);
  });
  EXPECT_EQ(cause, "");
  auto calls = calls_of_a_step("ddp of 2 ranks", 2);
  EXPECT_LE(calls["all"], 26);
  EXPECT_LT(calls["cudaGraphLaunch"], 3);  // 2, but one rank may be a step ahead
  EXPECT_EQ(calls["cudaMallocFromPoolAsync"] + calls["cudaEventQuery"], 0);
}

// Those of so many sums of two ranks, together.
Calls calls_of_sums(int sums, int64_t count) {
  const Calls before = emulation::calls();
  const std::string cause = comm::test::run_threads(2, 1, comm::Seconds(60), [&](comm::Context context) {
    const Device device{DeviceType::cuda, context.rank % runtime(test::kCuda).device_count()};
    comm::ProcessGroup group(comm::p2p_transport(std::move(context), device));
    const Tensor x = zeros({count}, DType::f32, device);
    for (int i = 0; i < sums; ++i) group.all_reduce(x).wait();
  });
  EXPECT_EQ(cause, "");
  Calls out = emulation::calls();
  for (const auto& [name, calls] : before) out[name] -= calls;
  return out;
}

// Of each rank: two that order its streams before, two for each of two fences, a kernel, a copy to the other rank, and
// two that order the streams afterwards.
TEST(StepCallsOfRanks, ASumOfAnySizeIsTenCalls) {
  RT_NEEDS_CUDA();
  for (const int64_t count : {1000, 200'000}) {
    const Calls few = calls_of_sums(4, count);
    Calls more = calls_of_sums(9, count);
    for (const auto& [name, each] :
         Calls{{"cudaEventRecord", 4}, {"cudaStreamWaitEvent", 4}, {"enqueue_kernel", 1}, {"cudaMemcpyAsync", 1}})
      EXPECT_EQ(more[name] - few.at(name), 10 * each) << name << ", " << count;
  }
}

#endif

}  // namespace
}  // namespace ringtape
