// Convolutions that need more than one tile and more than one chunk of a sum, which the record's samples do not.
#include <cmath>
#include <cstdlib>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "kernels/conv2d.h"
#include "kernels/cuda/conv/cudnn_conv.h"
#include "tests/support/cuda_support.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

using test::kCuda;

struct Case {
  const char* name;
  Shape x, w;
  Window window;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }
const Case kCases[] = {
    {"3x3", {2, 19, 17, 24}, {70, 3, 3, 24}, square_window(1, 1)},
    {"strided", {3, 15, 18, 20}, {66, 3, 3, 20}, square_window(2, 1)},
    {"1x1", {5, 13, 13, 40}, {72, 1, 1, 40}, square_window(2)},
    {"grouped", {2, 14, 14, 12}, {9, 3, 3, 4}, {1, 2, 2, 1, 2, 1}},
    {"one_place", {7, 3, 3, 65}, {67, 3, 3, 65}, square_window(1)},
};

class CudaConv : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override { RT_NEEDS_CUDA(); }
};

// What norm(got - want) / norm(want) may be in a dtype: half a unit in the last place of each result, and of each sum
// before the bias; for f32 Winograd's 1e-5 (docs/performance.md), a thirtieth of what TF32 would cost.
double bound_of(DType dtype) {
  return dtype == DType::f64 ? 1e-14 : dtype == DType::f32 ? 2e-5 : dtype == DType::f16 ? 0x1p-10 : 0x1p-8;
}

// Forward and both backward passes on the device and, of the same values, in f64 on the CPU.
void compare(const Case& c, DType dtype) {
  SCOPED_TRACE(name_of(dtype));
  manual_seed(3);
  const Tensor x = randn(c.x, 0, 1, dtype), w = randn(c.w, 0, 0.1, dtype), b = randn({c.w[0]}, 0, 1, dtype);
  const Shape shape = {c.x[0], c.window.rows(c.x[1], c.w[1]), c.window.columns(c.x[2], c.w[2]), c.w[0]};
  const Tensor dy = randn(shape, 0, 1, dtype);
  const auto wide = [](const Tensor& t) { return cast(t, DType::f64); };
  const auto check = [&](const char* what, const Tensor& got, const Tensor& want) {
    const auto norm = [](const Tensor& t) { return std::sqrt(sum(square(t)).item()); };
    EXPECT_LE(norm(wide(to(got, Device{})) - want), bound_of(dtype) * norm(want)) << what;  // also fails for NaN
  };

  Tensor y(shape, dtype, kCuda), want_y(shape, DType::f64);
  conv2d_forward(y, to(x, kCuda), to(w, kCuda), to(b, kCuda), c.window);
  conv2d_forward(want_y, wide(x), wide(w), wide(b), c.window);
  check("y", y, want_y);

  Tensor dx(c.x, dtype, kCuda), want_dx(c.x, DType::f64);
  conv2d_backward_data(dx, to(dy, kCuda), to(w, kCuda), c.window);
  conv2d_backward_data(want_dx, wide(dy), wide(w), c.window);
  check("dx", dx, want_dx);

  Tensor dw(c.w, dtype, kCuda), want_dw(c.w, DType::f64);
  conv2d_backward_weights(dw, to(dy, kCuda), to(x, kCuda), c.window);
  conv2d_backward_weights(want_dw, wide(dy), wide(x), c.window);
  check("dw", dw, want_dw);
}

TEST_P(CudaConv, IsTheCpusInEveryDType) {
  for (DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) compare(GetParam(), dtype);
}

#if defined(RINGTAPE_EMULATION_BUILD)
TEST(CudaConvEmulated, OurOwnKernelsAreTheOnesExecuted) {
  if (std::getenv("RINGTAPE_CUDNN")) GTEST_SKIP() << "RINGTAPE_CUDNN is set";
  EXPECT_FALSE(cuda::uses_cudnn());
}
#endif

INSTANTIATE_TEST_SUITE_P(Shapes, CudaConv, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

// All shapes of a ResNet-18 for 32x32 images; for the emulation with few channels and one image.
#if defined(RINGTAPE_EMULATION_BUILD)
constexpr int64_t kWidth = 4, kImages = 1;
#else
constexpr int64_t kWidth = 64, kImages = 8;
#endif
Case layer(const char* name, int64_t size, int64_t in, int64_t out, int64_t taps, int64_t stride) {
  return {name, {kImages, size, size, in}, {out, taps, taps, in}, square_window(stride, taps / 2)};
}
const Case kLayers[] = {
    layer("stem", 32, 3, kWidth, 3, 1),
    layer("stage_1", 32, kWidth, kWidth, 3, 1),
    layer("stage_2_first", 32, kWidth, 2 * kWidth, 3, 2),
    layer("stage_2_projection", 32, kWidth, 2 * kWidth, 1, 2),
    layer("stage_2", 16, 2 * kWidth, 2 * kWidth, 3, 1),
    layer("stage_3_first", 16, 2 * kWidth, 4 * kWidth, 3, 2),
    layer("stage_3_projection", 16, 2 * kWidth, 4 * kWidth, 1, 2),
    layer("stage_3", 8, 4 * kWidth, 4 * kWidth, 3, 1),
    layer("stage_4_first", 8, 4 * kWidth, 8 * kWidth, 3, 2),
    layer("stage_4_projection", 8, 4 * kWidth, 8 * kWidth, 1, 2),
    layer("stage_4", 4, 8 * kWidth, 8 * kWidth, 3, 1),
};

class CudaConvOfResNet18 : public CudaConv {};

TEST_P(CudaConvOfResNet18, IsTheCpus) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) compare(GetParam(), dtype);
}

INSTANTIATE_TEST_SUITE_P(Layers, CudaConvOfResNet18, testing::ValuesIn(kLayers),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ringtape
