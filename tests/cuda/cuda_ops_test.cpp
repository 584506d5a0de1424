// CUDA against the CPU for every op, from its record alone: values and gradients, dtypes, layouts, repeatability.
#include "autograd/gradcheck.h"
#include "autograd/ops.h"
#include "tests/support/cuda_support.h"
#include "tests/support/op_samples.h"

namespace ringtape {
namespace {

using test::expect_close;
using test::identical;
using test::kCuda;
using test::Result;
using test::run;

Tensors on_cuda(const Tensors& inputs) {
  Tensors out;
  for (const Tensor& x : inputs) out.push_back(to(x, kCuda));
  return out;
}

// What two devices may differ by: a few roundings, more where more is summed, which 16 bits do in f32.
double tolerance_of(const Op& op, DType dtype) {
  const double eps = dtype == DType::f64   ? 0x1p-50
                     : dtype == DType::f32 ? 0x1p-23
                     : dtype == DType::f16 ? 0x1p-10
                                           : 0x1p-8;
  return 8 * eps * (size_of(dtype) == 2 ? std::min(op.tolerance, 1.0) : op.tolerance);
}

class CudaOp : public testing::TestWithParam<Op> {
 protected:
  void SetUp() override { RT_NEEDS_CUDA(); }
  // f(sample, its inputs in `dtype`) for each sample
  template <class F>
  void for_each_sample(DType dtype, F&& f) {
    for (const Sample& sample : GetParam().samples) {
      SCOPED_TRACE(sample.tag);
      f(sample, draw(sample, dtype, 1, GetParam().kinks));
    }
  }
};

TEST_P(CudaOp, EqualsTheCpu) {
  for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16})
    for_each_sample(dtype, [&](const Sample& sample, const Tensors& inputs) {
      const double tolerance = tolerance_of(GetParam(), dtype);
      const Result got = run(GetParam(), sample, on_cuda(inputs));
      EXPECT_EQ(got.y.device(), kCuda);
      expect_close(got, run(GetParam(), sample, inputs), tolerance, tolerance, std::string(name_of(dtype)));
    });
}

TEST_P(CudaOp, TakesAnyLayout) {
  for_each_sample(DType::f32, [&](const Sample& sample, const Tensors& inputs) {
    for (const auto& [name, layout] : test::kLayouts) {
      Tensors strided, dense;
      for (const Tensor& x : inputs) {
        strided.push_back(layout(to(x, kCuda)));
        dense.push_back(contiguous(layout(x)));
      }
      const double tolerance = tolerance_of(GetParam(), DType::f32);
      expect_close(run(GetParam(), sample, strided), run(GetParam(), sample, dense), tolerance, tolerance, name);
    }
  });
}

TEST_P(CudaOp, RepeatsBitForBit) {
  for_each_sample(DType::f32, [&](const Sample& sample, const Tensors& inputs) {
    const Result first = run(GetParam(), sample, on_cuda(inputs));
    EXPECT_TRUE(identical(first, run(GetParam(), sample, on_cuda(inputs))));
  });
}

INSTANTIATE_TEST_SUITE_P(Ops, CudaOp, testing::ValuesIn(ops()),
                         [](const auto& info) { return std::string(info.param.name); });

// One op of each kind through finite differences on the device itself.
TEST(CudaGradcheck, HoldsOnTheDevice) {
  RT_NEEDS_CUDA();
  for (const Op& op : ops()) {
    const std::string name = op.name;
    if (name != "linear" && name != "cross_entropy" && name != "var") continue;
    const Sample& sample = op.samples.front();
    EXPECT_EQ(gradcheck(sample.call, on_cuda(draw(sample, DType::f64, 1, op.kinks))), "") << name;
  }
}

}  // namespace
}  // namespace ringtape
