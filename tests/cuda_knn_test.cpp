// Nearest neighbours on CUDA: those of the CPU, tile by tile.
#include <cmath>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "kernels/fill.h"
#include "kernels/knn.h"
#include "tests/cuda_support.h"
#include "tests/support.h"

namespace ringtape {
namespace {

using test::kCuda;
using test::values;

// Few whole numbers, so that every sum is exact and many products are equal.
Tensor whole_numbers(const Shape& shape, uint64_t seed) {
  Tensor x(shape);
  fill_uniform(x, RandomState{seed, Stream::test, 0}, -3, 4);
  for (float& v : x.span<float>()) v = std::floor(v);
  return x;
}

struct Found {
  Tensor products, rows;
};
Found find(const Tensor& queries, const Tensor& bank, int64_t k) {
  Found out{Tensor({queries.dim(0), k}, DType::f32, queries.device()), Tensor({queries.dim(0), k}, DType::i64, queries.device())};
  nearest_rows(out.products, out.rows, queries, bank);
  return out;
}

TEST(CudaNearest, AreThoseOfTheCpu) {
  RT_NEEDS_CUDA();
  for (const auto& [queries, bank, depth, k] : std::vector<std::array<int64_t, 4>>{
           {1, 1, 1, 1}, {3, 40, 5, 1}, {5, 40, 5, 40}, {2, 300, 3, 256}, {2, 1100, 3, 300}, {3, 8500, 2, 7}, {2049, 3, 2, 2}, {0, 4, 2, 2}}) {
    SCOPED_TRACE(concat(queries, " x ", bank, " x ", depth, ", k ", k));
    const Tensor q = whole_numbers({queries, depth}, 1), b = whole_numbers({bank, depth}, 2);
    const Found host = find(q, b, k), device = find(to(q, kCuda), to(b, kCuda), k);
    EXPECT_EQ(values(device.products), values(host.products));
    EXPECT_EQ(values(device.rows), values(host.rows));
  }
}

TEST(CudaNearest, SaysHowManyItCanFind) {
  RT_NEEDS_CUDA();
  const int64_t k = kMostNearest + 1;
  const Tensor q = ones({1, 1}, DType::f32, kCuda), bank = ones({k, 1}, DType::f32, kCuda);
  EXPECT_MENTIONS(test::message_of<UsageError>([&] { find(q, bank, k); }), "at most 2048");
}

TEST(CudaNearest, NanIsFurthest) {
  RT_NEEDS_CUDA();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor q = ones({1, 1}, DType::f32, kCuda), bank = from_host(std::vector<float>{nan, -1, -0.0f, 0, 2}, {5, 1}, kCuda);
  EXPECT_EQ(values(find(q, bank, 5).rows), (std::vector<double>{4, 2, 3, 1, 0}));
}

}  // namespace
}  // namespace ringtape
