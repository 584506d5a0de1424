#pragma once
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "kernels/conv2d.h"
#include "kernels/cuda/conv/cudnn_conv.h"
#include "tests/support/cuda_support.h"
#include "tests/support/support.h"
#if defined(RINGTAPE_EMULATION_BUILD)
#include "emulation/cudnn.h"
#endif

// Convolutions for the tests of cuDNN. Switches it on, with a file of plans for this process and those that it starts.
namespace ringtape::test {

using cuda::ConvPass;

constexpr ConvPass kConvPasses[] = {ConvPass::forward, ConvPass::backward_data, ConvPass::backward_weights,
                                    ConvPass::add_backward_data};

inline const std::string kPlans = [] {  // before anything reads the variables
  ::setenv("RINGTAPE_CUDNN", "1", 1);
  const char* const of_the_first = std::getenv("PLANS_OF_THE_TEST");
  const std::string path = of_the_first ? of_the_first : concat("/tmp/ringtape_plans_", ::getpid(), "/conv_plans");
  ::setenv("RINGTAPE_CONV_PLANS", path.c_str(), 1);
  struct Remove : testing::Environment {
    void TearDown() override { std::filesystem::remove_all(std::filesystem::path(kPlans).parent_path()); }
  };
  if (!of_the_first) testing::AddGlobalTestEnvironment(new Remove);
  return path;
}();

struct ConvCase {
  const char* name;
  Shape x, w;
  Window window{};
  Shape y() const { return {x[0], window.rows(x[1], w[1]), window.columns(x[2], w[2]), w[0]}; }
};
inline void PrintTo(const ConvCase& c, std::ostream* out) { *out << c.name; }

// One pass: its operands on a device, and its result in f64 on the CPU.
struct ConvProblem {
  ConvPass pass;
  Window window;
  Tensor x, w, y, want;

  ConvProblem(const ConvCase& c, ConvPass which, DType dtype, Device device = kCuda) : pass(which), window(c.window) {
    manual_seed(5);
    const auto operand = [&](ConvPass unless, const Shape& shape) {
      return pass == unless ? Tensor(shape, dtype, device) : to(randn(shape, 0, 1, dtype), device);
    };
    x = operand(ConvPass::backward_data, c.x);
    w = operand(ConvPass::backward_weights, c.w);
    y = operand(ConvPass::forward, c.y());
    want = Tensor(output().shape(), DType::f64);
    const auto wide = [](const Tensor& t) { return cast(to(t, Device{}), DType::f64); };
    if (pass == ConvPass::forward) conv2d_forward(want, wide(x), wide(w), Tensor(), window);
    else if (pass == ConvPass::backward_weights) conv2d_backward_weights(want, wide(y), wide(x), window);
    else conv2d_backward_data(want, wide(y), wide(w), window);
    if (pass == ConvPass::add_backward_data) want = want + wide(x);
  }
  const Tensor& output() const { return pass == ConvPass::forward ? y : pass == ConvPass::backward_weights ? w : x; }
  int64_t terms() const {  // of a sum, at most
    if (pass == ConvPass::backward_weights) return y.size() / y.shape()[3];
    return w.size() / (pass == ConvPass::forward ? w.shape()[0] : 1);
  }
  bool run() const { return cuda::cudnn_conv(pass, x, w, y, window); }
  void expect_right() const {
    const DType dtype = x.dtype();
    const double eps = dtype == DType::f32 ? 0x1p-23 : dtype == DType::f16 ? 0x1p-10 : 0x1p-8;
    const double tolerance = 8 * eps * std::sqrt(double(terms()));
    expect_close(output(), want, tolerance, tolerance, concat("pass ", int(pass), " in ", name_of(dtype)));
  }
};

class CudaCudnn : public testing::Test {
 protected:
  void SetUp() override {
    RT_NEEDS_CUDA();
    if (!cuda::uses_cudnn()) GTEST_SKIP() << "built without cuDNN";
  }
};
#if defined(RINGTAPE_EMULATION_BUILD)

using emulation::CudnnCalls;
using emulation::CudnnEngine;
using emulation::take_cudnn_calls;

// With the emulated cuDNN: its engines, and what is done with them.
class EmulatedCudnn : public CudaCudnn {
 protected:
  void SetUp() override {
    CudaCudnn::SetUp();
    if (!IsSkipped()) take_cudnn_calls();
  }
  void TearDown() override { emulation::set_cudnn_engines({}); }

  // A convolution that no other test has, so that its plan is not made yet.
  static ConvCase fresh() {
    static int64_t width = 20;
    return {"", {1, 3, ++width, 8}, {8, 2, 2, 8}};
  }
  // The engine that a convolution uses; -1: none.
  static int64_t used(const ConvProblem& p) {
    take_cudnn_calls();
    const bool ran = p.run();
    calls_ = take_cudnn_calls();
    EXPECT_EQ(ran, !calls_.executions.empty());
    if (ran) p.expect_right();
    return ran ? calls_.executions.back().engine : -1;
  }
  static int64_t used(std::vector<CudnnEngine> engines, DType dtype = DType::f32) {
    emulation::set_cudnn_engines(std::move(engines));
    return used(ConvProblem(fresh(), ConvPass::forward, dtype));
  }
  static size_t runs() { return calls_.executions.size(); }  // of the last one
  static std::string file() {
    std::ifstream in(kPlans, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  inline static CudnnCalls calls_;
};

#endif

}  // namespace ringtape::test
