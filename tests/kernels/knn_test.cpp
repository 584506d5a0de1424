// The nearest rows of a bank, against sorting all products.
#include "kernels/knn.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/fill.h"
#include "kernels/kernel.h"
#include "tests/support/isas.h"
#include "tests/support/nearest.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

using test::find_nearest;
using test::Found;
using test::values;
using test::whole_numbers;

Tensor noise(const Shape& shape, uint64_t seed) {
  Tensor x(shape);
  fill_uniform(x, RandomState{seed, Stream::test, 0}, -1, 1);
  return x;
}

// All products in double, sorted; of equal ones the lower row first.
void expect_nearest(const Tensor& queries, const Tensor& bank, int64_t k) {
  const Found found = find_nearest(queries, bank, k);
  const int64_t depth = queries.dim(1), size = bank.dim(0);
  for (int64_t q = 0; q < queries.dim(0); ++q) {
    std::vector<double> product(static_cast<size_t>(size));
    for (int64_t r = 0; r < size; ++r)
      for (int64_t d = 0; d < depth; ++d)
        product[size_t(r)] += double(queries.data<float>()[q * depth + d]) * double(bank.data<float>()[r * depth + d]);
    std::vector<int64_t> rows(static_cast<size_t>(size));
    std::iota(rows.begin(), rows.end(), 0);
    std::stable_sort(rows.begin(), rows.end(),
                     [&](int64_t a, int64_t b) { return product[size_t(a)] > product[size_t(b)]; });
    for (int64_t i = 0; i < k; ++i) {
      ASSERT_EQ(found.rows.data<int64_t>()[q * k + i], rows[size_t(i)]) << "query " << q << ", neighbour " << i;
      ASSERT_EQ(found.products.data<float>()[q * k + i], float(product[size_t(rows[size_t(i)])]))
          << "query " << q << ", neighbour " << i;
    }
  }
}

TEST(Nearest, AreTheLargestProductsOnEveryInstructionSet) {
  test::with_every_isa([&] {
    for (const auto& [queries, bank, depth, k] : std::vector<std::array<int64_t, 4>>{{1, 1, 1, 1},
                                                                                     {3, 40, 5, 1},
                                                                                     {5, 40, 5, 40},
                                                                                     {7, 700, 9, 200},
                                                                                     {400, 130, 3, 5},
                                                                                     {2, 3000, 400, 20},
                                                                                     {1, 70, 0, 65},
                                                                                     {15, 41000, 1, 40500},
                                                                                     {0, 4, 2, 2},
                                                                                     {3, 4, 2, 0}}) {
      SCOPED_TRACE(concat(queries, " x ", bank, " x ", depth, ", k ", k));
      expect_nearest(whole_numbers({queries, depth}, 1), whole_numbers({bank, depth}, 2), k);
    }
  });
}

// Whatever tile a query is in, by itself or among others, and for any threads: the same bits.
TEST(Nearest, OfOneQueryDependOnNothingElse) {
  const Tensor queries = noise({900, 70}, 3), bank = noise({1500, 70}, 4);
  const Found all = test::with_threads(1, [&] { return find_nearest(queries, bank, 10); });
  const Found shared = test::with_threads(3, [&] { return find_nearest(queries, bank, 10); });
  EXPECT_TRUE(test::same_bytes(all.products, shared.products));
  EXPECT_TRUE(test::same_bytes(all.rows, shared.rows));
  for (int64_t q : {0, 5, 391, 392, 899}) {
    const Found one = find_nearest(queries.window({1, 70}, {70, 1}, q * 70), bank, 10);
    EXPECT_EQ(values(one.products), values(all.products.window({1, 10}, {10, 1}, q * 10))) << q;
    EXPECT_EQ(values(one.rows), values(all.rows.window({1, 10}, {10, 1}, q * 10))) << q;
  }
}

TEST(Nearest, NanIsFurthestAndZerosAreEqual) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  const Tensor one = from_host(std::vector<float>{1}, {1, 1});
  const Tensor bank = from_host(std::vector<float>{nan, -infinity, -1, -0.0f, 0, infinity}, {6, 1});
  EXPECT_EQ(values(find_nearest(one, bank, 6).rows), (std::vector<double>{5, 3, 4, 2, 0, 1}));
  EXPECT_EQ(values(find_nearest(one, bank, 2).rows), (std::vector<double>{5, 3}));
}

}  // namespace
}  // namespace ringtape
