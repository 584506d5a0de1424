// Matrix products that the samples of the ops' records are too small to reach: every layout and dtype, sizes that fill
// no tile, misaligned operands, more tiles than blocks.
#include <cmath>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "tests/support/cuda_support.h"
#include "tests/support/cuda_tensors.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

using test::expect_close;
using test::Guarded;
using test::kCuda;
using test::kFloats;
using test::noise;

using CudaMatmul = test::OnCuda;

double epsilon(DType dtype) {
  return dtype == DType::f64 ? 1e-14 : dtype == DType::f32 ? 1e-6 : dtype == DType::f16 ? 2e-3 : 1e-2;
}

// cuBLASLt takes operands with a unit stride; with none, our own kernel does the work. Both against the CPU.
TEST_F(CudaMatmul, ShapesStridesAndDTypes) {
  struct Case {
    int64_t batch, m, n, k;
  };
  const std::vector<Case> cases = {{1, 1, 1, 1},   {1, 3, 5, 7},   {2, 65, 63, 17}, {3, 16, 130, 33}, {1, 64, 64, 16},
                                   {1, 70, 1, 40}, {1, 1, 70, 40}, {2, 5, 4, 0},    {1, 0, 4, 3},     {40, 2, 3, 4}};
  for (DType dtype : kFloats)
    for (const Case& c : cases)
      for (int step : {1, 2})
        for (bool transposed : {false, true}) {
          SCOPED_TRACE(concat(dtype, ' ', c.batch, ' ', c.m, ' ', c.n, ' ', c.k, " step ", step,
                              transposed ? " transposed" : ""));
          const auto operand = [&](int64_t rows, int64_t columns, uint64_t seed) {
            const Tensor x =
                noise(transposed ? Shape{c.batch, columns * step, rows} : Shape{c.batch, rows, columns * step}, dtype,
                      seed, -1, 1);
            return x;
          };
          const auto seen = [&](const Tensor& x) {
            return transposed ? transpose(slice(x, 1, 0, x.dim(1), step)) : slice(x, 2, 0, x.dim(2), step);
          };
          const Tensor a = operand(c.m, c.k, 1), w = operand(c.k, c.n, 2);
          const double tolerance = epsilon(dtype) * std::sqrt(double(c.k) + 1);
          expect_close(matmul(seen(to(a, kCuda)), seen(to(w, kCuda))), matmul(seen(a), seen(w)), tolerance, tolerance,
                       "matmul");
        }
}

TEST_F(CudaMatmul, SharedOperandsAndEpilogues) {
  for (DType dtype : kFloats) {
    const double tolerance = 8 * epsilon(dtype);
    const Tensor a = noise({3, 9, 20}, dtype, 1, -1, 1), w = noise({20, 70}, dtype, 2, -1, 1),
                 b = noise({70}, dtype, 3, -1, 1);
    expect_close(matmul(to(a, kCuda), to(w, kCuda)), matmul(a, w), tolerance, tolerance, "one w for all");
    const Tensor shared = expand(reshape(w, {1, 20, 70}), {3, 20, 70}),
                 on_device = expand(reshape(to(w, kCuda), {1, 20, 70}), {3, 20, 70});
    expect_close(matmul(permute(to(permute(a, {1, 0, 2}), kCuda), {1, 0, 2}), on_device), matmul(a, shared), tolerance,
                 tolerance, "a in another order");
    for (Activation f : {Activation::none, Activation::relu})
      for (bool bias : {false, true})
        for (int step : {1, 2}) {
          const Tensor x = slice(noise({33, 20 * step}, dtype, 5, -1, 1), 1, 0, 20 * step, step),
                       gx = slice(to(noise({33, 20 * step}, dtype, 5, -1, 1), kCuda), 1, 0, 20 * step, step);
          const Tensor v = transpose(w), gv = transpose(to(w, kCuda)), none;
          expect_close(linear(gx, gv, bias ? to(b, kCuda) : none, f), linear(x, v, bias ? b : none, f), tolerance,
                       tolerance, concat("linear, step ", step));
        }
  }
}

TEST_F(CudaMatmul, MisalignedOperandsAndManyTiles) {
  const Tensor a = noise({300, 129}, DType::f32, 1, -1, 1), w = noise({129, 200}, DType::f32, 2, -1, 1);
  const Guarded ga(a, 1), gw(w, 3);
  expect_close(matmul(ga.x, gw.x), matmul(a, w), 1e-5, 1e-5, "misaligned");
  const Tensor wide = noise({600, 34}, DType::f32, 3, -1, 1), tall = noise({34, 500}, DType::f32, 4, -1, 1);
  expect_close(matmul(slice(to(wide, kCuda), 1, 0, 34, 2), slice(to(tall, kCuda), 0, 0, 34, 2)),
               matmul(slice(wide, 1, 0, 34, 2), slice(tall, 0, 0, 34, 2)), 1e-5, 1e-5, "own, more tiles than blocks");
}

TEST_F(CudaMatmul, RoundsToTf32WhereThatIsAllowed) {
  manual_seed(1);
  const Tensor a = randn({64, 128}), w = randn({128, 64}), exact = matmul(cast(a, DType::f64), cast(w, DType::f64));
  const auto error = [&](bool allowed) {
    const test::Tf32 now(allowed);
    const Tensor off = cast(to(matmul(to(a, kCuda), to(w, kCuda)), Device{}), DType::f64) - exact;
    return std::sqrt(sum(square(off)).item() / sum(square(exact)).item());
  };
  EXPECT_LT(error(false), 2e-6);
  const double rounded = error(true);
  EXPECT_LT(rounded, 0x1p-11);
#if defined(RINGTAPE_EMULATION_BUILD)  // cuBLASLt may, but need not
  EXPECT_GT(rounded, 1e-4);
#endif
  EXPECT_LT(error(false), 2e-6) << "a plan for TF32 was taken";
}

}  // namespace
}  // namespace ringtape
