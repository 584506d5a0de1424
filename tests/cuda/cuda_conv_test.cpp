// Convolutions that need more than one tile and more than one chunk of a sum, which the record's samples do not.
#include <cmath>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "kernels/conv2d.h"
#include "tests/support/cuda_support.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

using test::expect_close;
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

// Forward and both backward passes on the device and, of the same values, in f64 on the CPU.
TEST_P(CudaConv, IsTheCpusInEveryDType) {
  const Case& c = GetParam();
  for (const auto& [dtype, eps] :
       {std::pair{DType::f64, 0x1p-52}, {DType::f32, 0x1p-23}, {DType::bf16, 0x1p-8}, {DType::f16, 0x1p-10}}) {
    SCOPED_TRACE(name_of(dtype));
    manual_seed(3);
    const Tensor x = randn(c.x, 0, 1, dtype), w = randn(c.w, 0, 0.1, dtype), b = randn({c.w[0]}, 0, 1, dtype);
    const Shape shape = {c.x[0], c.window.rows(c.x[1], c.w[1]), c.window.columns(c.x[2], c.w[2]), c.w[0]};
    const Tensor dy = randn(shape, 0, 1, dtype);
    const auto wide = [](const Tensor& t) { return cast(t, DType::f64); };
    const auto check = [&, eps = eps](const char* what, const Tensor& got, const Tensor& want, double terms) {
      const double tolerance = 8 * eps * std::sqrt(terms);
      expect_close(got, want, tolerance, tolerance, what);
    };
    const double taps = double(c.w.without(0).size());

    Tensor y(shape, dtype, kCuda), want_y(shape, DType::f64);
    conv2d_forward(y, to(x, kCuda), to(w, kCuda), to(b, kCuda), c.window);
    conv2d_forward(want_y, wide(x), wide(w), wide(b), c.window);
    check("y", y, want_y, taps);

    Tensor dx(c.x, dtype, kCuda), want_dx(c.x, DType::f64);
    conv2d_backward_data(dx, to(dy, kCuda), to(w, kCuda), c.window);
    conv2d_backward_data(want_dx, wide(dy), wide(w), c.window);
    check("dx", dx, want_dx, taps * double(c.w[0]) / double(c.w[3]));

    Tensor dw(c.w, dtype, kCuda), want_dw(c.w, DType::f64);
    conv2d_backward_weights(dw, to(dy, kCuda), to(x, kCuda), c.window);
    conv2d_backward_weights(want_dw, wide(dy), wide(x), c.window);
    check("dw", dw, want_dw, double(shape.size() / shape[3]));
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaConv, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ringtape
