// What the samples of index_select's record are too small to reach: rows of every width and alignment, long ones, sums
// in the order of the index, indices out of range.
#include <limits>

#include "autograd/ops.h"
#include "kernels/index_select.h"
#include "tests/support/cuda_support.h"
#include "tests/support/cuda_tensors.h"

namespace ringtape {
namespace {

using test::cuda;
using test::expect_close;
using test::integers;
using test::kCuda;
using test::kFloats;
using test::noise;
using test::values;

using CudaIndexSelect = test::OnCuda;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST_F(CudaIndexSelect, EveryWidth) {
  for (DType dtype : {DType::b8, DType::u8, DType::i32, DType::i64, DType::f16, DType::bf16, DType::f32, DType::f64})
    for (int64_t row : {0, 1, 2, 3, 4, 8, 33, 16 * 1100}) {
      const Tensor x = cast(noise({2, 9, row}, DType::f32, 1), dtype), index = integers(row > 1000 ? 3 : 50, 9, 2);
      const Shape shape{2, index.size(), row};
      Tensor want(shape, dtype), got(shape, dtype, kCuda), misaligned(shape, dtype, kCuda);
      index_select_forward(want, x, index);
      index_select_forward(got, cuda(x), cuda(index));
      index_select_forward(misaligned, cuda(x, 1), cuda(index));
      EXPECT_TRUE(test::same_bytes(got.copy_to(Device{}), want)) << name_of(dtype) << " " << row;
      EXPECT_TRUE(test::same_bytes(misaligned.copy_to(Device{}), want))
          << name_of(dtype) << " " << row << " misaligned";
    }
}

TEST_F(CudaIndexSelect, RowsThatAreMoreThanAGrid) {
  const Tensor index = from_host(std::vector<int64_t>{2, 0}, {2}),
               x = cast(noise({1, 3, 600001}, DType::f32, 1), DType::u8);
  Tensor want({1, 2, 600001}, DType::u8), got({1, 2, 600001}, DType::u8, kCuda);
  index_select_forward(want, x, index);
  index_select_forward(got, cuda(x), cuda(index));
  EXPECT_TRUE(test::same_bytes(got.copy_to(Device{}), want));

  const Tensor dy = noise({1, 2, 70001}, DType::f32, 1);
  Tensor dx({1, 3, 70001}, DType::f32), dx_got({1, 3, 70001}, DType::f32, kCuda);
  index_select_backward(dx, dy, index);
  index_select_backward(dx_got, cuda(dy), cuda(index));
  EXPECT_TRUE(test::same_bytes(dx_got.copy_to(Device{}), dx));
}

TEST_F(CudaIndexSelect, SumsInTheOrderOfTheIndex) {
  for (DType dtype : kFloats)
    for (const Shape& dx : {Shape{1, 9, 40}, Shape{3, 20, 1}, Shape{2, 5, 300}, Shape{1, 70, 8}, Shape{1, 4, 0}})
      for (int64_t count : {0, 1, 31, 300}) {
        const Tensor dy = noise({dx[0], count, dx[2]}, dtype, 1), index = integers(count, dx[1], 2);
        Tensor want(dx, dtype), got(dx, dtype, kCuda);
        index_select_backward(want, dy, index);
        index_select_backward(got, cuda(dy), cuda(index));
        EXPECT_TRUE(test::same_bytes(got.copy_to(Device{}), want)) << name_of(dtype) << " " << dx.str() << " " << count;
      }
}

TEST_F(CudaIndexSelect, AnIndexOutOfRange) {
  const Tensor index = from_host(std::vector<int64_t>{1, -1, 3, 2}, {4});
  for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i32}) {
    const Tensor x = cast(from_host(std::vector<double>{1, 2, 3, 4, 5, 6}, {1, 3, 2}), dtype);
    Tensor y({1, 4, 2}, dtype, kCuda);
    index_select_forward(y, cuda(x), cuda(index));
    const double none = is_float(dtype) ? kNan : 0;
    const Tensor want = from_host(std::vector<double>{3, 4, none, none, none, none, 5, 6}, {1, 4, 2});
    expect_close(y, cast(want, dtype), 0, 0, std::string(name_of(dtype)));
  }
  Tensor dx({1, 3, 2}, DType::f32, kCuda);
  index_select_backward(dx, full({1, 4, 2}, 1, DType::f32, kCuda), cuda(index));
  EXPECT_EQ(values(dx), (std::vector<double>{0, 0, 1, 1, 1, 1}));
}

}  // namespace
}  // namespace ringtape
