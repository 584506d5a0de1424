// Collectives on GPUs: their arithmetic, and ranks that are threads of one process.
#include "autograd/create.h"
#include "autograd/ops.h"
#include "kernels/combine.h"
#include "kernels/copy.h"
#include "kernels/fill.h"
#include "tests/cuda_support.h"
#include "tests/support.h"

namespace ringtape {
namespace {

using test::kCuda;
using test::same_bytes;

class CudaCombine : public testing::Test {
 protected:
  void SetUp() override { RT_NEEDS_CUDA(); }
};

Tensor numbers(int64_t n, DType dtype, uint64_t seed) {
  Tensor x({n}, DType::f32);
  fill_uniform(x, RandomState{seed, Stream::test, 0}, dtype == DType::u8 ? 0.0 : -200.0, 200.0);
  return cast(x, dtype);
}

// The CPU's result and the GPU's have the same bits, whatever is aligned, and nothing behind y is written.
void expect_same_combine(DType dtype, int64_t n, int count, int64_t offset, ReduceOp op, double factor, int into = -1) {
  SCOPED_TRACE(concat(op, " of ", count, " ", dtype, ", n ", n, ", offset ", offset, ", factor ", factor, ", into ", into));
  Sources host{}, device{};
  std::vector<Tensor> kept;
  for (int s = 0; s < count; ++s) {
    const Tensor x = numbers(n + offset, dtype, uint64_t(s) + 1), on_device = to(x, kCuda);
    host.data[host.count++] = View(x.window({n}, {1}, offset)).data;
    device.data[device.count++] = View(on_device.window({n}, {1}, offset)).data;
    kept.insert(kept.end(), {x, on_device});
  }
  const Tensor y({n}, dtype), whole = full({n + offset + 9}, 77, dtype, kCuda);
  const Tensor out = into < 0 ? whole.window({n}, {1}, offset) : kept[size_t(2 * into + 1)].window({n}, {1}, offset);
  combine(y, host, op, factor);
  combine(out, device, op, factor);
  EXPECT_TRUE(same_bytes(contiguous(to(out, Device{})), y));
  const std::vector<double> all = test::values(whole);
  for (int64_t i = 0; i < int64_t(all.size()); ++i)
    if (into >= 0 || i < offset || i >= offset + n) {
      ASSERT_EQ(all[size_t(i)], 77) << "written outside, at " << i - offset;
    }
}

TEST_F(CudaCombine, IsThatOfTheCpu) {
  for (const DType dtype : {DType::u8, DType::i32, DType::i64, DType::f16, DType::bf16, DType::f32, DType::f64})
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::max, ReduceOp::min, ReduceOp::product})
      for (const int64_t n : {1, 31, 523})
        for (const int64_t offset : {0, 1}) expect_same_combine(dtype, n, 3, offset, op, op == ReduceOp::avg ? 1.0 / 3 : 1);
}

TEST_F(CudaCombine, AnyNumberOfSourcesAndManyElements) {
  for (const int count : {1, 2, kMaxSources}) expect_same_combine(DType::f32, 100, count, 0, ReduceOp::sum, 0.5);
  expect_same_combine(DType::bf16, 300007, 2, 0, ReduceOp::sum, 1);
  expect_same_combine(DType::i32, 0, 2, 0, ReduceOp::sum, 1);
}

TEST_F(CudaCombine, IntoAnyOfItsSources) {
  for (const DType dtype : {DType::f32, DType::f16, DType::u8})
    for (int into = 0; into < 3; ++into) expect_same_combine(dtype, 523, 3, 0, ReduceOp::sum, 1, into);
}

}  // namespace
}  // namespace ringtape
