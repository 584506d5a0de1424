// Elements further than 2^31 from the first one: few are touched, so that the emulation needs little memory for them.
#include "autograd/create.h"
#include "autograd/ops.h"
#include "core/cuda/device.h"
#include "emulation/emulation.h"
#include "kernels/copy.h"
#include "kernels/fill.h"
#include "tests/support/cuda_support.h"
#include "tests/support/cuda_tensors.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

using test::kCuda;

class CudaLarge : public test::OnCuda {
 protected:
#if defined(RINGTAPE_EMULATION_BUILD)
  void SetUp() override {
    OnCuda::SetUp();
    emulation::Gpu larger = before_;
    larger.memory_bytes = size_t{7} << 29;
    emulation::set_gpu(larger);
  }
  void TearDown() override { emulation::set_gpu(before_); }

 private:
  const emulation::Gpu before_ = emulation::gpu();
#endif
};

Tensor bytes(const Shape& shape, uint64_t seed) {
  return cast(reshape(test::integers(shape.size(), 100, seed), shape), DType::u8);
}
void expect_same(const Tensor& got, const Tensor& want, const char* what) {
  EXPECT_TRUE(test::same_bytes(contiguous(to(got, Device{})), want)) << what;
}

TEST_F(CudaLarge, OffsetsBeyond31Bits) {
  constexpr int64_t kFar = int64_t{1} << 31, kColumns = 64, kRows = kFar / kColumns + 64;
  const Tensor whole({kRows, kColumns}, DType::u8, kCuda), a = bytes({3, 40}, 1), b = bytes({3, 40}, 2);
  const Shape strides{kFar / 2 + 100, 1};
  const Tensor far = whole.window({3, 40}, strides), apart = whole.window({3, 40}, strides, 2048);
  copy(far, to(a, kCuda)), copy(apart, to(b, kCuda));
  expect_same(far, a, "what was written");
  expect_same(transpose(far), contiguous(transpose(a)), "transposed");
  expect_same(far + apart, a + b, "sum");
  expect_same(maximum(far, apart), maximum(a, b), "maximum");
  expect_same(sum(far, {0}), sum(a, {0}), "sum of rows");
  expect_same(cast(far, DType::f32), cast(a, DType::f32), "as f32");
  fill(apart, 7);
  expect_same(apart, full({3, 40}, 7, DType::u8), "filled");
  const Tensor last = bytes({2, kColumns}, 3);
  copy(slice(whole, 0, kRows - 2, kRows), to(last, kCuda));
  const Tensor rows = from_host(std::vector<int64_t>{kRows - 1, kRows - 2, kRows - 1}, {3}),
               near = from_host(std::vector<int64_t>{1, 0, 1}, {3});
  expect_same(index_select(whole, 0, to(rows, kCuda)), index_select(last, 0, near), "selected rows");
}

}  // namespace
}  // namespace ringtape
