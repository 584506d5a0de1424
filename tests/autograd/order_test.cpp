// Conventions of ops that order elements or take an index, beside plain loops, in every dtype.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "kernels/cpu_isa.h"
#include "nn/embedding.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

using test::message_of;
using test::values;
using Numbers = std::vector<double>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();
const std::vector<DType> kAll = {DType::b8,  DType::u8,   DType::i32, DType::i64,
                                 DType::f16, DType::bf16, DType::f32, DType::f64};

class EveryIsa : public testing::TestWithParam<CpuIsa> {
 protected:
  void SetUp() override { set_cpu_isa(GetParam()); }
  void TearDown() override { set_cpu_isa(before_); }

 private:
  CpuIsa before_ = cpu_isa();
};
class OrderOps : public EveryIsa {};
class IndexOps : public EveryIsa {};
std::string name_of_isa(const testing::TestParamInfo<CpuIsa>& info) { return std::string(name_of(info.param)); }
INSTANTIATE_TEST_SUITE_P(Isas, OrderOps, testing::ValuesIn(cpu_isas()), name_of_isa);
INSTANTIATE_TEST_SUITE_P(Isas, IndexOps, testing::ValuesIn(cpu_isas()), name_of_isa);

// Whole numbers from a small range, so that many are equal; the same in every dtype.
Tensor numbers(const Shape& shape, DType dtype, uint64_t seed) {
  manual_seed(seed);
  const double low = dtype == DType::b8 || dtype == DType::u8 ? 0 : -40;
  return cast(cast(rand(shape, low, dtype == DType::b8 ? 2 : 40), DType::i32), dtype);
}
Tensor index_of(const std::vector<int64_t>& numbers, const Shape& shape) { return from_host(numbers, shape); }
Tensor f64(const Numbers& numbers) { return from_host(numbers, {int64_t(numbers.size())}); }

bool above(double a, double b) { return std::isnan(a) ? !std::isnan(b) : a > b; }

// The order of a row: stable, NaN above all.
std::vector<int64_t> order_of(const Numbers& row, bool descending) {
  std::vector<int64_t> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) {
    return descending ? above(row[size_t(i)], row[size_t(j)]) : above(row[size_t(j)], row[size_t(i)]);
  });
  return order;
}

TEST_P(OrderOps, SortsAsALoopDoes) {
  for (const DType dtype : kAll)
    for (const int64_t n : {1, 2, 100, 191, 192, 1000, 5000})
      for (const bool descending : {false, true}) {
        const Tensor x = numbers({n}, dtype, uint64_t(n));
        const std::vector<int64_t> order = order_of(values(x), descending);
        const Numbers want(order.begin(), order.end());
        const SortResult s = sort(x, 0, descending);
        EXPECT_EQ(values(s.indices), want) << name_of(dtype) << ' ' << n;
        EXPECT_EQ(values(s.values), values(index_select(x, 0, s.indices)));
        EXPECT_EQ(s.values.dtype(), dtype);
        for (const int64_t k : {int64_t{0}, int64_t{1}, n / 9, n / 2, n}) {
          const SortResult first = topk(x, k, 0, descending);
          EXPECT_EQ(values(first.indices), Numbers(want.begin(), want.begin() + k)) << name_of(dtype) << ' ' << n;
          EXPECT_EQ(values(first.values), values(slice(s.values, 0, 0, k)));
        }
      }
}

TEST_P(OrderOps, ALongRowIsTheSameForAnyThreads) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    manual_seed(3);
    const Tensor x = cast(randn({2, 70000}), dtype);
    const auto sorted = [&] { return sort(x).indices; };
    const auto sums = [&] { return cumsum(x, 1); };
    const Tensor one = test::with_threads(1, sorted), own = test::with_threads(1, sums);
    for (int count : {2, 3}) {
      EXPECT_TRUE(test::same_bytes(test::with_threads(count, sorted), one));
      EXPECT_TRUE(test::same_bytes(test::with_threads(count, sums), own));
    }
    const Numbers row = values(slice(x, 0, 1, 2)), got = values(slice(one, 0, 1, 2));
    const std::vector<int64_t> want = order_of(row, false);
    EXPECT_EQ(got, Numbers(want.begin(), want.end()));
  }
}

TEST_P(OrderOps, NaNIsAboveAllAndZerosAreEqual) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    const Tensor x = cast(f64({1, -kNan, 0.0, kInf, -0.0, -kInf, kNan}), dtype);
    EXPECT_EQ(values(argsort(x)), (Numbers{5, 2, 4, 0, 3, 1, 6}));
    EXPECT_EQ(values(argsort(x, 0, true)), (Numbers{1, 6, 3, 0, 2, 4, 5}));
    EXPECT_EQ(values(topk(x, 2).indices), (Numbers{1, 6}));
    EXPECT_EQ(values(topk(x, 2, 0, false).indices), (Numbers{5, 2}));
    EXPECT_EQ(argmax(x).item(), 1);
    EXPECT_EQ(argmin(x).item(), 1);
    const Tensor rest = cast(f64({-0.0, 0.0, -0.0}), dtype);
    EXPECT_EQ(argmax(rest).item(), 0);
    EXPECT_EQ(argmin(rest).item(), 0);
    EXPECT_TRUE(test::same_bytes(sort(rest).values, rest));  // the zeros keep their signs
  }
}

TEST_P(OrderOps, TheExtremesOfIntegers) {
  const int64_t low = std::numeric_limits<int64_t>::min(), high = std::numeric_limits<int64_t>::max();
  const Tensor x = index_of({high - 1, low + 1, high, low, high, low}, {6});
  EXPECT_EQ(values(argsort(x)), (Numbers{3, 5, 1, 0, 2, 4}));
  EXPECT_EQ(argmax(x).item(), 2);
  EXPECT_EQ(argmin(x).item(), 3);
  const Tensor same = index_of({high, high}, {2});
  EXPECT_EQ(argmin(same).item(), 0);
}

TEST_P(OrderOps, TheFirstExtremeAlongEachAxis) {
  for (const DType dtype : kAll)
    for (const Shape& shape : {Shape{3, 7, 2}, Shape{2, 3000, 11}, Shape{1, 70000, 1}, Shape{2, 40, 600}}) {
      const Tensor x = numbers(shape, dtype, 1);
      const Numbers all = values(x);
      Numbers largest, smallest;
      for (int64_t o = 0; o < shape[0]; ++o)
        for (int64_t r = 0; r < shape[2]; ++r) {
          const auto at = [&](int64_t i) { return all[size_t((o * shape[1] + i) * shape[2] + r)]; };
          int64_t top = 0, bottom = 0;
          for (int64_t i = 1; i < shape[1]; ++i) {
            if (at(i) > at(top)) top = i;
            if (at(i) < at(bottom)) bottom = i;
          }
          largest.push_back(double(top)), smallest.push_back(double(bottom));
        }
      EXPECT_EQ(values(argmax(x, 1)), largest) << name_of(dtype) << ' ' << shape.str();
      EXPECT_EQ(values(argmin(x, 1, true)), smallest) << name_of(dtype) << ' ' << shape.str();
      EXPECT_EQ(argmax(x).item(), double(std::max_element(all.begin(), all.end()) - all.begin()));
    }
}

TEST_P(OrderOps, RunningSums) {
  for (const DType dtype : kAll)
    for (const Shape& shape : {Shape{2, 9, 1}, Shape{5, 40000, 1}, Shape{2, 9, 300}}) {
      const Tensor x = numbers(shape, dtype, 2), y = cumsum(x, 1);
      EXPECT_EQ(y.dtype(), is_float(dtype) ? dtype : DType::i64);
      if (size_of(dtype) == 2 && is_float(dtype) && shape[1] > 1000) continue;  // beyond what 16 bits hold
      Numbers want = values(x);
      for (size_t i = 0; i < want.size(); ++i)
        if (int64_t(i) / shape[2] % shape[1] > 0) want[i] += want[i - size_t(shape[2])];
      EXPECT_EQ(values(y), want) << name_of(dtype) << ' ' << shape.str();
    }
}

TEST_P(IndexOps, GatherAndScatterAddAreInverseLoops) {
  const Tensor x = numbers({3, 5, 4}, DType::f64, 1), src = numbers({3, 9, 4}, DType::f64, 2);
  manual_seed(4);
  for (int axis : {0, 1, 2}) {
    const Tensor index = cast(rand({2, 5, 3}, 0, 3), DType::i32);
    const Tensor y = gather(x, axis, index), z = scatter_add(x, axis, index, src);
    Numbers sums = values(x), got;
    const Numbers all = values(x), places = values(index), added = values(src);
    for (int64_t i = 0, at = 0; i < 2; ++i)
      for (int64_t j = 0; j < 5; ++j)
        for (int64_t k = 0; k < 3; ++k, ++at) {
          int64_t to[3] = {i, j, k};
          to[axis] = int64_t(places[size_t(at)]);
          const size_t place = size_t((to[0] * 5 + to[1]) * 4 + to[2]);
          got.push_back(all[place]);
          sums[place] += added[size_t((i * 9 + j) * 4 + k)];
        }
    EXPECT_EQ(values(y), got) << axis;
    EXPECT_EQ(values(z), sums) << axis;
  }
}

TEST_P(IndexOps, EveryDtypeIsGathered) {
  for (const DType dtype : kAll) {
    const Tensor x = numbers({2, 3}, dtype, 1), index = index_of({2, 0, 1, 1}, {2, 2});
    const Numbers v = values(x);
    EXPECT_EQ(values(gather(x, 1, index)), (Numbers{v[2], v[0], v[4], v[4]})) << name_of(dtype);
    if (dtype == DType::b8) {
      EXPECT_THROW(scatter_add(x, 1, index, x), DTypeError);
      continue;
    }
    const Tensor sums = scatter_add(zeros({3}, dtype), 0, index_of({1, 1, 2, 1}, {4}), ones({4}, dtype));
    EXPECT_EQ(values(sums), (Numbers{0, 3, 1})) << name_of(dtype);
    EXPECT_EQ(sums.dtype(), dtype);
  }
}

TEST_P(IndexOps, SixteenBitsAreSummedInF32) {
  const Tensor x = zeros({1}, DType::bf16), index = zeros({1000}, DType::i64);
  EXPECT_EQ(scatter_add(x, 0, index, ones({1000}, DType::bf16)).item(), 1000);
}

TEST_P(IndexOps, EmbeddingsAndTheirPadding) {
  manual_seed(0);
  nn::Embedding layer(4, 3, -2);
  EXPECT_EQ(layer.str(), "Embedding(4 x 3, padding -2)");
  EXPECT_EQ(values(slice(layer.weight, 0, 2, 3)), (Numbers{0, 0, 0}));
  const Tensor tokens = index_of({0, 2, 0, 3}, {2, 2}), y = layer(tokens);
  EXPECT_EQ(y.shape(), (Shape{2, 2, 3}));
  EXPECT_EQ(values(y), values(layer(cast(tokens, DType::i32))));
  backward(sum(y));
  EXPECT_EQ(values(grad(layer.weight)), (Numbers{2, 2, 2, 0, 0, 0, 0, 0, 0, 1, 1, 1}));
  EXPECT_MENTIONS(message_of<UsageError>([&] { layer(index_of({4}, {1})); }),
                  "embedding: index 4 into an axis of size 4");
  EXPECT_MENTIONS(message_of<UsageError>([] { nn::Embedding(2, 3, 2); }), "padding 2 is not one of 2 rows");
}

TEST(Embeddings, ThePaddingMayLieBehindTheWholeNumbersOfF32) {
  constexpr int64_t count = (1 << 24) + 4, padding = (1 << 24) + 1;
  const Numbers end = values(slice(nn::Embedding(count, 1, padding).weight.detach(), 0, count - 4, count));
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(end[i] == 0, i == 1) << i;
}

TEST_P(IndexOps, OneHotAndMaskedFill) {
  EXPECT_EQ(values(one_hot(index_of({1, 0}, {2}), 3)), (Numbers{0, 1, 0, 1, 0, 0}));
  EXPECT_EQ(one_hot(index_of({1, 0}, {2, 1}), 3).dtype(), DType::i64);
  const Tensor x = from_host(Numbers{1, 2, 3}, {3});
  EXPECT_EQ(values(masked_fill(x, greater(x, 1.0), -kInf)), (Numbers{1, -kInf, -kInf}));
}

TEST(MaskedFill, ValuesOfWholeNumbers) {
  const Tensor all = ones({1}, DType::b8), i64 = zeros({1}, DType::i64);
  constexpr int64_t large = (int64_t{1} << 53) + 1;
  EXPECT_EQ(masked_fill(i64, all, large).span<int64_t>()[0], large);
  EXPECT_EQ(masked_fill(i64, all, INT64_MIN).span<int64_t>()[0], INT64_MIN);
  EXPECT_EQ(masked_fill(i64, all, 3.0).item(), 3);
  EXPECT_EQ(masked_fill(zeros({1}, DType::b8), all, true).item(), 1);
  for (const double value : {kInf, -kInf, double(NAN), 2.5, 0x1p63})
    EXPECT_MENTIONS(message_of<DTypeError>([&] { masked_fill(i64, all, value); }), "masked_fill: a value of ");
  EXPECT_EQ(message_of<DTypeError>([&] { masked_fill(zeros({1}, DType::u8), all, 256); }),
            "masked_fill: a value of 256 for u8, which cannot hold it; convert x with cast(x, dtype)");
  EXPECT_THROW(masked_fill(zeros({1}, DType::i32), all, large), DTypeError);
  EXPECT_THROW(masked_fill(zeros({1}, DType::b8), all, 2), DTypeError);
}

TEST_P(IndexOps, WhatIsRefused) {
  const Tensor x = zeros({2, 3});
  EXPECT_MENTIONS(message_of<UsageError>([&] {
                    gather(x, 1, index_of({0, 3}, {2, 1}));
                  }),
                  "gather: index 3 into an axis of size 3");
  EXPECT_MENTIONS(message_of<UsageError>([&] {
                    scatter_add(x, 1, index_of({0, -1}, {2, 1}), x);
                  }),
                  "scatter_add: index -1 into an axis of size 3");
  EXPECT_MENTIONS(message_of<UsageError>([&] { one_hot(index_of({3}, {1}), 3); }), "one_hot: index 3");
  EXPECT_MENTIONS(message_of<ShapeError>([&] { topk(x, 4); }),
                  "topk: k is 4, but axis 1 of shape (2, 3) has 3 elements");
  EXPECT_MENTIONS(message_of<ShapeError>([&] { argmax(zeros({2, 0}), 1); }), "has no elements");
  EXPECT_MENTIONS(message_of<DTypeError>([&] { gather(x, 1, x); }), "gather: the index is f32, not i64 or i32");
}

}  // namespace
}  // namespace ringtape
