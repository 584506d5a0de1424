// CUDA against the CPU for every op, from its record alone: values and gradients, dtypes, layouts, repeatability.
#include "autograd/gradcheck.h"
#include "autograd/ops.h"
#include "tests/support/cuda_support.h"
#include "tests/support/op_checks.h"

namespace ringtape {
namespace {

using test::kCuda;

class CudaOp : public testing::TestWithParam<test::OpCase> {
 protected:
  void SetUp() override { RT_NEEDS_CUDA(); }
};

TEST_P(CudaOp, Passes) { EXPECT_EQ(GetParam().check->run(*GetParam().op, kCuda), ""); }

INSTANTIATE_TEST_SUITE_P(Ops, CudaOp, testing::ValuesIn(test::op_cases(DeviceType::cuda)), test::name_of_case);

// One op of each kind through finite differences on the device itself.
TEST(CudaGradcheck, HoldsOnTheDevice) {
  RT_NEEDS_CUDA();
  for (const Op& op : ops()) {
    const std::string name = op.name;
    if (name != "linear" && name != "cross_entropy" && name != "var") continue;
    const Sample& sample = op.samples.front();
    Tensors inputs;
    for (const Tensor& x : draw(sample, DType::f64, 1, op.kinks)) inputs.push_back(to(x, kCuda));
    EXPECT_EQ(gradcheck(sample.call, inputs), "") << name;
  }
}

}  // namespace
}  // namespace ringtape
