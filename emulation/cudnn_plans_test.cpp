// The plans of the emulated cuDNN: the quickest is found, kept and found again; devices and threads.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "core/cuda/graph.h"
#include "tests/support/cudnn_support.h"

namespace ringtape {
namespace {

using namespace test;

TEST_F(EmulatedCudnn, TheQuickestIsMeasuredOnce) {
  emulation::set_cudnn_engines({{.index = 1, .milliseconds = 3},
                                {.index = 2, .notes = {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}, .milliseconds = 0.1},
                                {.index = 3, .workspace_bytes = 512, .milliseconds = 1},
                                {.index = 4, .milliseconds = 2, .fallback = true}});
  for (const ConvPass pass : {ConvPass::forward, ConvPass::backward_data, ConvPass::backward_weights}) {
    const ConvProblem p(fresh(), pass, DType::f32);
    EXPECT_EQ(used(p), 3);
    EXPECT_EQ(runs(), 3u * 9 + 1);
    for (const auto& execution : calls_.executions) EXPECT_NE(execution.engine, 2);
    EXPECT_EQ(used(p), 3);
    EXPECT_EQ(runs(), 1u);
  }
  EXPECT_EQ(used({{.index = 5, .builds = false}, {.index = 6}}), 6);
  EXPECT_EQ(runs(), 1u);                   // nothing to choose
  const int64_t whole = int64_t{1} << 30;  // for which there is no memory
  EXPECT_EQ(used({{.index = 1, .workspace_bytes = whole, .milliseconds = 0.1}, {.index = 2}}), 2);
}

// Steps are recorded: then it does not matter how long the host takes to launch a plan.
TEST_F(EmulatedCudnn, TheTimeOfTheHostDoesNotCount) {
  EXPECT_EQ(used({{.index = 1, .milliseconds = 0.01, .launch_milliseconds = 1}, {.index = 2, .milliseconds = 0.02}}),
            1);
}

TEST_F(EmulatedCudnn, APlanThatCannotBeRecordedIsForWhenThereIsNoOther) {
  const CudnnEngine no{.index = 1, .milliseconds = 0.01, .recordable = false};
  EXPECT_EQ(used({no, {.index = 2}}), 2);
  EXPECT_EQ(used({no, {.index = 3, .milliseconds = 0.01, .recordable = false}}), 1);
}

TEST_F(EmulatedCudnn, EightAreMeasured) {
  std::vector<CudnnEngine> engines;
  for (int i = 1; i <= 9; ++i) engines.push_back({.index = i, .milliseconds = 10.0 - i});
  EXPECT_EQ(used(engines), 8);
}

TEST_F(EmulatedCudnn, KnobsTellPlansOfOneEngineApart) {
  const ConvCase c = fresh();
  const auto tile = [](int64_t size, double time) {
    return CudnnEngine{
        .index = 1, .knobs = {{CUDNN_KNOB_TYPE_TILE_SIZE, size}}, .workspace_bytes = 256 * size, .milliseconds = time};
  };
  emulation::set_cudnn_engines({tile(1, 3), tile(2, 1), tile(3, 2)});
  EXPECT_EQ(used(ConvProblem(c, ConvPass::forward, DType::f32)), 1);
  EXPECT_MENTIONS(file(), "\tengine 1 knobs 2=2\n");
}

// Two GPUs of one kind need one measurement; also where the engine that was chosen is no longer proposed.
TEST_F(EmulatedCudnn, AChoiceIsForAllDevicesOfItsKind) {
  const ConvCase c = fresh(), d = fresh();
  const Device other{DeviceType::cuda, 1};
  emulation::set_cudnn_engines({{.index = 1, .milliseconds = 2}, {.index = 2, .milliseconds = 1}});
  EXPECT_EQ(used(ConvProblem(c, ConvPass::forward, DType::f32)), 2);
  EXPECT_EQ(used(ConvProblem(d, ConvPass::forward, DType::f32)), 2);
  emulation::set_cudnn_engines({{.index = 1, .milliseconds = 1}, {.index = 2, .milliseconds = 2}});
  EXPECT_EQ(used(ConvProblem(c, ConvPass::forward, DType::f32, other)), 2);
  EXPECT_EQ(runs(), 1u);
  emulation::set_cudnn_engines({{.index = 5, .milliseconds = 2}, {.index = 6, .milliseconds = 1}});
  EXPECT_EQ(used(ConvProblem(d, ConvPass::forward, DType::f32, other)), 6);
}

const ConvCase kOfTwoProcesses{"", {1, 3, 5, 8}, {8, 2, 2, 8}};

TEST_F(EmulatedCudnn, ALaterProcessMakesTheSameChoice) {
  emulation::set_cudnn_engines({{.index = 1, .milliseconds = 2}, {.index = 2, .milliseconds = 1}});
  EXPECT_EQ(used(ConvProblem(kOfTwoProcesses, ConvPass::forward, DType::f32)), 2);
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const auto later = [&](const std::string& plans) {
    return std::system(concat("PLANS_OF_THE_TEST=", plans, ' ', program, " --gtest_also_run_disabled_tests ",
                              "--gtest_filter=*DISABLED_Later >/dev/null 2>&1")
                           .c_str());
  };
  EXPECT_EQ(later(kPlans), 0);
  EXPECT_NE(later("off"), 0);  // it would notice
}
TEST_F(EmulatedCudnn, DISABLED_Later) {
  emulation::set_cudnn_engines({{.index = 1, .milliseconds = 1}, {.index = 2, .milliseconds = 2}});
  EXPECT_EQ(used(ConvProblem(kOfTwoProcesses, ConvPass::forward, DType::f32)), 2);
  EXPECT_EQ(runs(), 1u);
}

TEST_F(EmulatedCudnn, DeterministicMeansTheFirstPlanWhateverWasMeasured) {
  emulation::set_cudnn_engines({{.index = 1, .milliseconds = 2}, {.index = 2, .milliseconds = 1}});
  const ConvProblem p(fresh(), ConvPass::forward, DType::f32), never(fresh(), ConvPass::forward, DType::f32);
  EXPECT_EQ(used(p), 2);
  const std::string before = file();
  {
    const ArithmeticScope first(&Arithmetic::deterministic_convolutions, true);
    for (const ConvProblem* problem : {&p, &never}) {
      EXPECT_EQ(used(*problem), 1);
      EXPECT_EQ(runs(), 1u);
    }
  }
  EXPECT_EQ(file(), before);
  EXPECT_EQ(used(p), 2);
  EXPECT_EQ(used(never), 2);
}

TEST_F(EmulatedCudnn, NothingIsMeasuredWhileAGraphIsRecorded) {
  emulation::set_cudnn_engines({{.index = 1, .milliseconds = 2}, {.index = 2, .milliseconds = 1}});
  const ConvCase c = fresh();
  const ConvProblem p(c, ConvPass::forward, DType::f32);
  const std::string before = file();
  take_cudnn_calls();
  cuda::Graph graph(0, [&] { EXPECT_TRUE(p.run()); });
  const CudnnCalls calls = take_cudnn_calls();
  ASSERT_EQ(calls.executions.size(), 1u);
  EXPECT_EQ(calls.executions[0].engine, 1);
  EXPECT_EQ(file(), before);
  graph.launch();
  p.expect_right();
  EXPECT_EQ(used(p), 2);
  graph.launch();  // with the plan that it was recorded with
  p.expect_right();
  const ConvProblem elsewhere(c, ConvPass::forward, DType::f32, {DeviceType::cuda, 1});
  take_cudnn_calls();
  cuda::Graph knowing(1, [&] { EXPECT_TRUE(elsewhere.run()); });
  EXPECT_EQ(take_cudnn_calls().executions[0].engine, 2);
}

// Each waits inside cuDNN until the other one is there, too.
TEST_F(EmulatedCudnn, DevicesAreUsedAtOnce) {
  const ArithmeticScope scope(&Arithmetic::deterministic_convolutions, true);
  const ConvCase c = fresh();
  const ConvProblem first(c, ConvPass::forward, DType::f32);
  const ConvProblem second(c, ConvPass::forward, DType::f32, {DeviceType::cuda, 1});
  std::atomic<int> inside{0};
  emulation::at_cudnn_execute([&](int) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    ++inside;
    while (inside < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    EXPECT_EQ(inside, 2);
  });
  std::thread other([&] { EXPECT_TRUE(second.run()); });
  EXPECT_TRUE(first.run());
  other.join();
  emulation::at_cudnn_execute({});
  first.expect_right();
  second.expect_right();
}

// The emulation reports two threads that use one handle at a time.
TEST_F(EmulatedCudnn, ThreadsTakeTurnsOnADevice) {
  emulation::at_cudnn_execute([](int) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); });
  std::vector<ConvProblem> problems;
  for (int i = 0; i < 4; ++i) problems.emplace_back(fresh(), ConvPass::forward, DType::f32);
  std::vector<std::thread> threads;
  for (const ConvProblem& p : problems) threads.emplace_back([&] { EXPECT_TRUE(p.run()); });
  for (std::thread& thread : threads) thread.join();
  emulation::at_cudnn_execute({});
  for (const ConvProblem& p : problems) p.expect_right();
}

}  // namespace
}  // namespace ringtape
