// What the samples of the ops' records are too small to reach, and other dtypes, in the kernels that order elements or
// take an index.
#include <array>
#include <cmath>
#include <limits>

#include "kernels/argmax.h"
#include "kernels/cumsum.h"
#include "kernels/gather.h"
#include "kernels/sort.h"
#include "kernels/triangle.h"
#include "tests/support/cuda_support.h"
#include "tests/support/cuda_tensors.h"

namespace ringtape {
namespace {

using test::kCuda;
using test::noise;
using test::same_bytes;
using test::values;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
const std::vector<DType> kAll = {DType::b8,  DType::u8,   DType::i32, DType::i64,
                                 DType::f16, DType::bf16, DType::f32, DType::f64};

using CudaOrder = test::OnCuda;

Tensor cuda(const Tensor& x) { return to(x, kCuda); }

// Whole numbers, many of them equal; floats also have NaN.
Tensor numbers(const Shape& shape, DType dtype, uint64_t seed) {
  const Tensor x = noise(shape, DType::f32, seed, dtype == DType::b8 || dtype == DType::u8 ? 0 : -20, 20);
  const Tensor whole = cast(cast(x, DType::i32), is_float(dtype) ? DType::f64 : dtype);
  return is_float(dtype) ? cast(where(equal(whole, 7.0), full({}, kNan, DType::f64), whole), dtype) : whole;
}

TEST_F(CudaOrder, SortsLikeTheCpu) {
  for (const DType dtype : kAll)
    for (const auto& [rows, n, k] : {std::array<int64_t, 3>{3, 1, 1}, {2, 33, 5}, {2, 1024, 1024}, {1, 2500, 2500}}) {
      const Tensor x = numbers({rows, n}, dtype, 1);
      for (const bool descending : {false, true}) {
        Tensor want({rows, k}, dtype), index({rows, k}, DType::i64), got({rows, k}, dtype, kCuda),
            got_index({rows, k}, DType::i64, kCuda);
        sort_forward(want, index, x, descending);
        sort_forward(got, got_index, cuda(x), descending);
        EXPECT_TRUE(same_bytes(got.copy_to(Device{}), want)) << name_of(dtype) << ' ' << n;
        EXPECT_TRUE(same_bytes(got_index.copy_to(Device{}), index)) << name_of(dtype) << ' ' << n;
      }
    }
}

TEST_F(CudaOrder, FindsTheExtremesLikeTheCpu) {
  for (const DType dtype : kAll)
    for (const Shape& shape : {Shape{3, 70, 1}, Shape{1, 9000, 1}, Shape{2, 5, 3}, Shape{1, 600, 3}})
      for (const bool smallest : {false, true}) {
        const Tensor x = numbers(shape, dtype, 2);
        Tensor want({shape[0], shape[2]}, DType::i64), got({shape[0], shape[2]}, DType::i64, kCuda);
        argmax_forward(want, x, smallest);
        argmax_forward(got, cuda(x), smallest);
        EXPECT_EQ(values(got), values(want)) << name_of(dtype) << ' ' << shape.str();
      }
}

TEST_F(CudaOrder, SumsLikeTheCpu) {
  for (const DType dtype : kAll)
    for (const Shape& shape : {Shape{3, 70, 1}, Shape{1, 600, 1}, Shape{2, 5, 3}})
      for (const bool reverse : {false, true}) {
        const double low = dtype == DType::b8 || dtype == DType::u8 ? 0 : -2;
        const Tensor x = cast(cast(noise(shape, DType::f32, 3, low, 3), DType::i32), dtype);  // exact in 16 bits
        const DType sums = is_float(dtype) ? dtype : DType::i64;
        Tensor want(shape, sums), got(shape, sums, kCuda);
        cumsum_forward(want, x, reverse);
        cumsum_forward(got, cuda(x), reverse);
        EXPECT_EQ(values(got), values(want)) << name_of(dtype) << ' ' << shape.str();
      }
}

TEST_F(CudaOrder, GathersAndScattersLikeTheCpu) {
  for (const DType dtype : kAll)
    for (const auto& [y, count] :
         {std::pair{Shape{3, 7, 1}, int64_t{5}}, {Shape{1, 9, 1}, 200}, {Shape{2, 4, 3}, 70}, {Shape{1, 3, 1100}, 4}}) {
      const Shape shape{y[0], count, y[2]};
      const Tensor x = numbers(y, dtype, 4), src = cast(numbers(shape, DType::i32, 5), dtype),
                   index = cast(noise(shape, DType::f64, 6, 0, double(y[1])), DType::i64);
      Tensor want(shape, dtype), got(shape, dtype, kCuda);
      gather_forward(want, x, index);
      gather_forward(got, cuda(x), cuda(index));
      EXPECT_TRUE(same_bytes(got.copy_to(Device{}), want)) << name_of(dtype) << ' ' << y.str();
      if (dtype == DType::b8) {
        EXPECT_THROW(scatter_add_forward(cuda(x), cuda(index), cuda(src), false), DTypeError);
        continue;
      }
      const Tensor host = zeros(y, dtype), device = zeros(y, dtype, kCuda);
      scatter_add_forward(host, index, src, false);
      scatter_add_forward(device, cuda(index), cuda(src), false);
      EXPECT_TRUE(same_bytes(device.copy_to(Device{}), host)) << name_of(dtype) << ' ' << y.str();
    }
  for (const DType dtype : kAll) {
    if (dtype == DType::b8) continue;
    const Tensor index = from_host(std::vector<int64_t>{2, 0, 3, 1, 1, 3}, {1, 3, 2}), y = numbers({1, 4, 2}, dtype, 8),
                 src = ones({1, 3, 2}, dtype), got = contiguous(y).copy_to(kCuda);
    scatter_add_forward(y, index, src, true);
    scatter_add_forward(got, cuda(index), cuda(src), true);
    EXPECT_TRUE(same_bytes(got.copy_to(Device{}), y)) << name_of(dtype);
  }
}

TEST_F(CudaOrder, AnIndexOutOfRange) {
  const Tensor index = cuda(from_host(std::vector<int64_t>{-1, 1, 2}, {1, 3, 1}));
  for (const DType dtype : {DType::f32, DType::bf16, DType::i32}) {
    const Tensor x = full({1, 2, 1}, 5, dtype, kCuda);
    Tensor y({1, 3, 1}, dtype, kCuda);
    gather_forward(y, x, index);
    const std::vector<double> got = values(y);
    EXPECT_EQ(got[1], 5);
    for (int i : {0, 2}) EXPECT_TRUE(is_float(dtype) ? std::isnan(got[size_t(i)]) : got[size_t(i)] == 0);
    for (const bool unique : {false, true}) scatter_add_forward(x, index, full({1, 3, 1}, 1, dtype, kCuda), unique);
    EXPECT_EQ(values(x), (std::vector<double>{5, 7}));
  }
  const Tensor many = cuda(full({1, 100, 1}, -1, DType::i64)), x = full({1, 2, 1}, 5, DType::f32, kCuda);
  scatter_add_forward(x, many, full({1, 100, 1}, 1, DType::f32, kCuda), false);
  EXPECT_EQ(values(x), (std::vector<double>{5, 5}));
}

TEST_F(CudaOrder, RangesLikeTheCpu) {
  for (const DType dtype : {DType::i32, DType::i64, DType::bf16, DType::f32, DType::f64})
    EXPECT_EQ(values(arange(5, -6, -2, dtype, kCuda)), values(arange(5, -6, -2, dtype)));
  for (int64_t n : {0, 1, 2, 7})
    EXPECT_EQ(values(linspace(-1, 0.3, n, DType::f64, kCuda)), values(linspace(-1, 0.3, n, DType::f64)));
}

TEST_F(CudaOrder, TrianglesOfEveryDtype) {
  for (const DType dtype : kAll)
    for (const bool upper : {false, true}) {
      const Tensor x = numbers({2, 3, 5}, dtype, 7);
      Tensor want({2, 3, 5}, dtype), got({2, 3, 5}, dtype, kCuda);
      triangle_forward(want, x, 1, upper);
      triangle_forward(got, cuda(x), 1, upper);
      EXPECT_TRUE(same_bytes(got.copy_to(Device{}), want)) << name_of(dtype);
    }
}

}  // namespace
}  // namespace ringtape
