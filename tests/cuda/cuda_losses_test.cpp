// The losses of self-supervised learning on CUDA: values and gradients of the CPU.
#include <cmath>

#include "autograd/ops.h"
#include "autograd/tape.h"
#include "nn/loss/losses.h"
#include "nn/loss/spread.h"
#include "tests/support/cuda_support.h"
#include "tests/support/support.h"

namespace ringtape::nn {
namespace {

Tensors views(const Loss& loss) {
  constexpr int64_t n = 6, d = 4;
  Tensors z;
  for (int v = 0; v < loss.views; ++v) {
    std::vector<float> x;
    for (int64_t i = 0; i < n * d; ++i) x.push_back(float(std::sin(1.3 * double(i) + double(i % d * i % 7) + 2.1 * v)));
    z.push_back(from_host(x, {n, d}));
  }
  return z;
}

TEST(CudaLosses, AreThoseOfTheCpu) {
  RT_NEEDS_CUDA();
  for (const Loss& loss : losses()) {
    Tensors here = views(loss), there;
    for (Tensor& z : here) there.push_back(leaf(to(z, test::kCuda))), z = leaf(z);
    const Tensor want = loss.call(here, nullptr), got = loss.call(there, nullptr);
    EXPECT_EQ(got.device(), test::kCuda) << loss.name;
    test::expect_close(got, want, 1e-5, 1e-5, loss.name);
    backward(want), backward(got);
    for (size_t v = 0; v < here.size(); ++v) {
      ASSERT_EQ(grad(there[v]).defined(), grad(here[v]).defined()) << loss.name;
      if (grad(here[v]).defined())
        test::expect_close(grad(there[v]), grad(here[v]), 1e-4, 1e-5, concat(loss.name, ", view ", v));
    }
    test::expect_close(spread(there[0]), spread(here[0]), 1e-5, 0, "spread");
  }
}

}  // namespace
}  // namespace ringtape::nn
