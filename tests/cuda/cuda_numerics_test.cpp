// Digits and special values on CUDA.
#include "tests/support/cuda_support.h"
#include "tests/support/numerics.h"

namespace ringtape {
namespace {

using test::Numerics;

INSTANTIATE_TEST_SUITE_P(Cuda, Numerics, testing::Values(test::Where{test::kCuda}), test::name_of_where);

TEST(CudaNumerics, UniformNumbersHaveTheBytesOfTheCpu) {
  RT_NEEDS_CUDA();
  for (DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64})
    for (double low : {0.0, -0.3, 1.0}) {
      Tensor host({4099}, dtype), device({4099}, dtype, test::kCuda);
      for (const Tensor& x : {host, device}) fill_uniform(x, RandomState{1, Stream::test, 9}, low, low + 1.7);
      EXPECT_TRUE(test::same_bytes(device.copy_to({}), host)) << name_of(dtype) << " from " << low;
    }
}

}  // namespace
}  // namespace ringtape
