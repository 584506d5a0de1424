// Convolutions by cuDNN: values beside the CPU's, and, with the emulated cuDNN, which plans are made and used.
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "kernels/conv_norm.h"
#include "tests/support/cudnn_support.h"

namespace ringtape {
namespace {

using namespace test;

class CudaCudnnShapes : public CudaCudnn, public testing::WithParamInterface<ConvCase> {};

TEST_P(CudaCudnnShapes, AreThoseOfTheCpu) {
  for (const ConvPass pass : kConvPasses)
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      const ConvProblem p(GetParam(), pass, dtype);
#if defined(RINGTAPE_EMULATION_BUILD)
      EXPECT_TRUE(p.run());
#else
      if (!p.run()) continue;  // a library without an engine for this
#endif
      p.expect_right();
    }
}

const ConvCase kShapes[] = {
    {"resnet_stem", {2, 9, 9, 3}, {64, 3, 3, 3}, square_window(1, 1)},
    {"resnet_7x7_stem", {1, 17, 15, 3}, {16, 7, 7, 3}, square_window(2, 3)},
    {"resnet_block", {2, 5, 6, 64}, {64, 3, 3, 64}, square_window(1, 1)},
    {"resnet_first_of_a_stage", {2, 6, 7, 64}, {128, 3, 3, 64}, square_window(2, 1)},
    {"resnet_shortcut", {2, 7, 6, 64}, {128, 1, 1, 64}, square_window(2)},
    {"dilated", {2, 11, 9, 8}, {16, 3, 3, 8}, square_window(1, 2, 2)},
    {"rectangular", {2, 9, 12, 8}, {8, 3, 5, 8}, {2, 1, 1, 3, 1, 2}},
    {"grouped", {2, 8, 7, 24}, {16, 3, 3, 6}, square_window(1, 1)},
    {"depthwise", {2, 7, 8, 16}, {16, 3, 3, 1}, square_window(2, 1)},
    {"places_that_no_kernel_covers", {1, 10, 11, 8}, {8, 2, 2, 8}, square_window(3)},
};
INSTANTIATE_TEST_SUITE_P(All, CudaCudnnShapes, testing::ValuesIn(kShapes),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_F(CudaCudnn, TheOperationUsesItAndAddsTheBias) {
  const ConvCase c{"", {2, 6, 5, 8}, {16, 3, 3, 8}, square_window(1, 1)};
  const ConvProblem p(c, ConvPass::forward, DType::f32);
  const Tensor b = randn({16}), y(c.y(), DType::f32, kCuda);
  conv2d_forward(y, p.x, p.w, to(b, kCuda), p.window);
  expect_close(y, add(p.want, cast(b, DType::f64)), 1e-5, 1e-5, "y with its bias");
#if defined(RINGTAPE_EMULATION_BUILD)
  EXPECT_FALSE(emulation::take_cudnn_calls().executions.empty());
#endif
}

// A fork as in a residual block: the shortcut's gradient is there before the convolution's, which is added to it.
struct Fork {
  Tensor x, w, dy;
  explicit Fork(DType dtype, int64_t width = 4) {  // of whole numbers: no sum is rounded
    manual_seed(4);
    const auto draw = [&](const Shape& shape) { return cast(cast(rand(shape, -2, 2.9), DType::i32), dtype); };
    x = draw({1, 3, width, 8}), w = draw({8, 3, 3, 8}), dy = draw({1, 3, width, 8});
  }
  Tensor dx(Device device) const {
    const Tensor a = leaf(to(x, device)), in = a * 1, seed = to(dy, device);
    const Tensor y = conv2d(in, to(w, device), {}, square_window(1, 1)), shortcut = in * 2;
    backward(sum(y * seed) + sum(shortcut * seed));
    return to(grad(a), Device{});
  }
};

TEST_F(CudaCudnn, TheGradientOfAForkIsThatOfTheCpu) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    EXPECT_TRUE(same_bytes(Fork(dtype).dx(kCuda), Fork(dtype).dx(Device{}))) << name_of(dtype);
}

TEST_F(CudaCudnn, NothingIsFusedBesideIt) {
  for (const DType dtype : {DType::bf16, DType::f16})
    EXPECT_EQ(block_kernels({kCuda, dtype, {8, 4, 4, 64}, {64, 3, 3, 64}, 1}), BlockKernels::one_by_one);
}

TEST_F(CudaCudnn, WhatItCannotDoIsLeftAsItWas) {
  const ConvCase c{"", {1, 4, 4, 8}, {8, 1, 1, 8}};
  for (const int misaligned : {0, 1, 2, 3}) {  // none: but f64
    ConvProblem p(c, ConvPass::forward, misaligned ? DType::f32 : DType::f64);
    Tensor& moved = misaligned == 3 ? p.y : misaligned == 2 ? p.w : p.x;
    const Tensor larger({moved.size() + 1}, moved.dtype(), kCuda);
    if (misaligned) {
      const Shape shape = moved.shape();
      moved = larger.window(shape, contiguous_strides(shape), 1);
    }
    const Tensor y = full(p.y.shape(), 7, p.y.dtype(), kCuda);
    if (misaligned != 3) p.y = y;
#if defined(RINGTAPE_EMULATION_BUILD)
    emulation::take_cudnn_calls();
#endif
    EXPECT_FALSE(p.run()) << misaligned;
    for (const double value : values(y)) ASSERT_EQ(value, 7);
#if defined(RINGTAPE_EMULATION_BUILD)
    const emulation::CudnnCalls calls = emulation::take_cudnn_calls();
    EXPECT_EQ(calls.heuristics + calls.plans + int(calls.executions.size()), 0);
#endif
  }
}

TEST_F(CudaCudnn, EmptyOperandsAreLeftToTheOwnKernels) {
  const Tensor w({8, 3, 3, 8}, DType::f32, kCuda), x({0, 4, 4, 8}, DType::f32, kCuda);
  const Tensor y({0, 2, 2, 8}, DType::f32, kCuda);
  EXPECT_FALSE(cuda::cudnn_conv(ConvPass::forward, x, w, y, {}));
  EXPECT_FALSE(cuda::cudnn_conv(ConvPass::backward_weights, x, w, y, {}));
}

#if defined(RINGTAPE_EMULATION_BUILD)

TEST_F(EmulatedCudnn, EnginesThatRoundOrVaryAreNeverUsed) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    SCOPED_TRACE(name_of(dtype));
    for (const auto note : {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION}) {
      EXPECT_EQ(used({{.index = 3, .notes = {note}}}, dtype), -1);
      EXPECT_EQ(used({{.index = 3, .notes = {CUDNN_NUMERICAL_NOTE_WINOGRAD, note}}, {.index = 4}}, dtype), 4);
    }
    for (const auto note : {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS}) {
      EXPECT_EQ(used({{.index = 3, .notes = {note}}}, dtype), dtype == DType::f32 ? -1 : 3);
    }
    EXPECT_EQ(used({{.index = 3, .notes = {CUDNN_NUMERICAL_NOTE_WINOGRAD}}}, dtype), 3);
  }
}

TEST_F(EmulatedCudnn, EnginesThatRoundToTf32AreUsedOnlyWhereThatIsAllowed) {
  const ConvCase c = fresh();
  emulation::set_cudnn_engines({{.index = 3, .notes = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}}, {.index = 4}});
  const auto engine = [&](bool allowed) {
    const test::Tf32 now(allowed);
    EXPECT_TRUE(ConvProblem(c, ConvPass::forward, DType::f32).run());
    const CudnnCalls calls = take_cudnn_calls();
    return calls.executions.empty() ? -1 : int64_t(calls.executions.back().engine);
  };
  EXPECT_EQ(engine(false), 4);
  EXPECT_EQ(engine(true), 3) << "a plan without TF32 was taken";
  EXPECT_EQ(engine(false), 4) << "a plan with TF32 was taken";
}

TEST_F(EmulatedCudnn, PlansThatDoNotFitAreSkipped) {
  const int64_t large = (int64_t{1} << 30) + 1;
  EXPECT_EQ(used({{.index = 1, .workspace_bytes = large}, {.index = 2, .workspace_bytes = 1000}}), 2);
  EXPECT_EQ(used({{.index = 1, .workspace_bytes = large}}), -1);
  EXPECT_EQ(used({{.index = 1, .builds = false}, {.index = 2}}), 2);
  EXPECT_EQ(used({{.index = 1, .builds = false}, {.index = 2, .fallback = true}}), 2);
  EXPECT_EQ(used({{.index = 1, .builds = false}}), -1);
}

TEST_F(EmulatedCudnn, APlanIsMadeOnce) {
  for (const ConvProblem& p : {ConvProblem(fresh(), ConvPass::forward, DType::f32)}) {
    EXPECT_TRUE(p.run());
    EXPECT_GT(take_cudnn_calls().plans, 0);
    EXPECT_TRUE(p.run());
    const CudnnCalls again = take_cudnn_calls();
    EXPECT_EQ(again.heuristics + again.plans + again.handles, 0);
    EXPECT_EQ(again.executions.size(), 1u);
    p.expect_right();
  }
  emulation::set_cudnn_engines({{.index = 1, .builds = false}});
  const ConvProblem none(fresh(), ConvPass::forward, DType::f32);
  EXPECT_FALSE(none.run());
  take_cudnn_calls();
  EXPECT_FALSE(none.run());
  EXPECT_EQ(take_cudnn_calls().heuristics, 0);  // that there is none is known, too
}

TEST_F(EmulatedCudnn, AForkIsASumInTheConvolutionIfThereIsAnEngine) {
  const auto launched = [](bool adds) {
    emulation::set_cudnn_engines({{.index = 1, .adds = adds}});
    const Fork fork(DType::bf16, adds ? 5 : 6);  // sizes with no plan yet
    const Tensor once = fork.dx(kCuda);          // makes the plans
    const uint64_t before = emulation::calls()["enqueue_kernel"];
    EXPECT_TRUE(same_bytes(fork.dx(kCuda), once));
    EXPECT_TRUE(same_bytes(fork.dx(Device{}), once));
    return emulation::calls()["enqueue_kernel"] - before;
  };
  const uint64_t in_one = launched(true);
  EXPECT_EQ(launched(false), in_one + 1);
}

// Convolutions of equal sizes that differ in one number of the window, and of windows that are equal otherwise.
TEST_F(EmulatedCudnn, EachNumberMakesAPlan) {
  const Shape c8{8, 1, 1, 8};
  const ConvCase cases[] = {
      {"stride_h 2", {1, 4, 3, 8}, c8, {2, 1, 0, 0, 1, 1}},
      {"stride_h 3", {1, 4, 3, 8}, c8, {3, 1, 0, 0, 1, 1}},
      {"stride_w 2", {1, 3, 4, 8}, c8, {1, 2, 0, 0, 1, 1}},
      {"stride_w 3", {1, 3, 4, 8}, c8, {1, 3, 0, 0, 1, 1}},
      {"pad_h 0", {1, 4, 4, 8}, {8, 2, 2, 8}, {5, 5, 0, 0, 1, 1}},
      {"pad_h 1", {1, 4, 4, 8}, {8, 2, 2, 8}, {5, 5, 1, 0, 1, 1}},
      {"pad_w 1", {1, 4, 4, 8}, {8, 2, 2, 8}, {5, 5, 0, 1, 1, 1}},
      {"dilation_h 2", {1, 4, 4, 8}, {8, 2, 2, 8}, {5, 5, 0, 0, 2, 1}},
      {"dilation_w 2", {1, 4, 4, 8}, {8, 2, 2, 8}, {5, 5, 0, 0, 1, 2}},
      {"N", {2, 4, 4, 8}, {8, 2, 2, 8}, {5, 5, 0, 0, 1, 1}},
      {"H", {1, 5, 4, 8}, {8, 2, 2, 8}, {5, 5, 0, 0, 1, 1}},
      {"W", {1, 4, 5, 8}, {8, 2, 2, 8}, {5, 5, 0, 0, 1, 1}},
      {"C", {1, 4, 4, 16}, {8, 2, 2, 16}, {5, 5, 0, 0, 1, 1}},
      {"groups", {1, 4, 4, 8}, {8, 2, 2, 4}, {5, 5, 0, 0, 1, 1}},
      {"K", {1, 4, 4, 8}, {16, 2, 2, 8}, {5, 5, 0, 0, 1, 1}},
      {"R", {1, 4, 4, 8}, {8, 3, 2, 8}, {5, 5, 0, 0, 1, 1}},
      {"S", {1, 4, 4, 8}, {8, 2, 3, 8}, {5, 5, 0, 0, 1, 1}},
  };
  for (const ConvCase& c : cases)
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
      for (const ConvPass pass : {ConvPass::forward, ConvPass::backward_data, ConvPass::backward_weights})
        for (const int device : {0, 1}) {
          SCOPED_TRACE(concat(c.name, ", ", name_of(dtype), ", pass ", int(pass), ", device ", device));
          const ConvProblem p(c, pass, dtype, {DeviceType::cuda, device});
          take_cudnn_calls();
          EXPECT_TRUE(p.run());
          const CudnnCalls calls = take_cudnn_calls();
          EXPECT_GT(calls.heuristics, 0);
          EXPECT_GT(calls.plans, 0);
          p.expect_right();
        }
}

TEST_F(EmulatedCudnn, DevicesShareNoHandle) {
  const ConvCase c = fresh();
  std::vector<cudnnHandle_t> handles;
  for (const int device : {0, 1, 0}) {
    const ConvProblem p(c, ConvPass::forward, DType::f32, {DeviceType::cuda, device});
    take_cudnn_calls();
    EXPECT_TRUE(p.run());
    const CudnnCalls calls = take_cudnn_calls();
    ASSERT_FALSE(calls.executions.empty());
    for (const auto& execution : calls.executions) EXPECT_EQ(execution.device, device);
    handles.push_back(calls.executions.back().handle);
    p.expect_right();
  }
  EXPECT_NE(handles[0], handles[1]);
  EXPECT_EQ(handles[0], handles[2]);
}

#endif

}  // namespace
}  // namespace ringtape
