// Digits and special values on the CPU, in every instruction set.
#include "tests/support/numerics.h"

namespace ringtape {
namespace {

using test::Numerics;

INSTANTIATE_TEST_SUITE_P(Cpu, Numerics, testing::ValuesIn(test::every_cpu()), test::name_of_where);

// 64 gradients of the matrix would be 16 MiB.
TEST(Matmul, OneMatrixForABatchHasAGradientOfItsOwnSize) {
  const Tensor a = rand({64, 2, 256}), b = leaf(rand({256, 256})), y = matmul(a, b), dy = rand({64, 2, 256});
  reset_peak_memory({});
  const int64_t before = memory_stats({}).current;
  backward(y, dy);
  EXPECT_LT(memory_stats({}).peak - before, 3 * 256 * 256 * 4);
}

}  // namespace
}  // namespace ringtape
