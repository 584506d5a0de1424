// The kernel that collectives do their arithmetic with.
#include "kernels/combine.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "kernels/fill.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

using test::same_bytes;
using test::values;
using test::with_threads;

const std::vector<DType> kNumbers = {DType::u8,   DType::i32, DType::i64, DType::f16,
                                     DType::bf16, DType::f32, DType::f64};
const std::vector<ReduceOp> kOps = {ReduceOp::sum, ReduceOp::avg, ReduceOp::max, ReduceOp::min, ReduceOp::product};

class Combine : public testing::TestWithParam<CpuIsa> {
 protected:
  void SetUp() override { set_cpu_isa(GetParam()); }
  void TearDown() override { set_cpu_isa(before_); }
  CpuIsa before_ = cpu_isa();
};
INSTANTIATE_TEST_SUITE_P(Isa, Combine, testing::ValuesIn(cpu_isas()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

Sources sources_of(const std::vector<Tensor>& x) {
  Sources all{};
  for (const Tensor& t : x) all.data[all.count++] = View(t).data;
  return all;
}

// Small whole numbers, some negative where there are such; every result below is exact in
// every dtype but bf16 and f16 products.
std::vector<Tensor> inputs(int count, int64_t n, DType dtype) {
  std::vector<Tensor> x;
  for (int s = 0; s < count; ++s) {
    Tensor t({n}, DType::f32);
    for (int64_t i = 0; i < n; ++i)
      t.data<float>()[i] = float((i * 7 + s * 5 + i * s) % 4) - (dtype == DType::u8 ? 0.0f : 1.0f);
    x.push_back(cast(t, dtype));
  }
  return x;
}

double expected(const std::vector<std::vector<double>>& x, size_t i, ReduceOp op) {
  double all = x[0][i];
  for (size_t s = 1; s < x.size(); ++s) {
    if (op == ReduceOp::max) all = std::max(all, x[s][i]);
    else if (op == ReduceOp::min) all = std::min(all, x[s][i]);
    else if (op == ReduceOp::product) all *= x[s][i];
    else all += x[s][i];
  }
  return all;
}

TEST_P(Combine, EveryDTypeOpNumberOfSourcesAndSize) {
  for (const DType dtype : kNumbers)
    for (const ReduceOp op : kOps)
      for (const int count : {1, 2, 3, 7, kMaxSources})
        for (const int64_t n : {0, 1, 15, 16, 63, 64, 65, 257, 1031}) {
          if (op == ReduceOp::product && count > 7) continue;  // overflows
          SCOPED_TRACE(concat(op, " of ", count, " ", dtype, ", n ", n));
          const std::vector<Tensor> x = inputs(count, n, dtype);
          std::vector<std::vector<double>> host;
          for (const Tensor& t : x) host.push_back(values(t));
          const Tensor y({n}, dtype);
          combine(y, sources_of(x), op, 1);
          const std::vector<double> got = values(y);
          for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], expected(host, i, op)) << "at " << i;
        }
}

TEST_P(Combine, IntoAnyOfItsSources) {
  for (const DType dtype : kNumbers)
    for (int into = 0; into < 4; ++into) {
      const std::vector<Tensor> x = inputs(4, 1031, dtype);
      const Tensor y({1031}, dtype);
      combine(y, sources_of(x), ReduceOp::sum, 0.5);
      combine(x[size_t(into)], sources_of(x), ReduceOp::sum, 0.5);
      EXPECT_TRUE(same_bytes(x[size_t(into)], y)) << name_of(dtype) << " into source " << into;
    }
}

TEST_P(Combine, UnalignedAndInParts) {
  for (const DType dtype : kNumbers) {
    const int64_t n = 200003, offset = 3;
    const std::vector<Tensor> x = inputs(3, n + offset, dtype);
    std::vector<Tensor> parts;
    for (const Tensor& t : x) parts.push_back(t.window({n}, {1}, offset));
    const Tensor one({n}, dtype), four({n}, dtype);
    with_threads(1, [&] { combine(one, sources_of(parts), ReduceOp::sum, 0.25); });
    with_threads(4, [&] { combine(four, sources_of(parts), ReduceOp::sum, 0.25); });
    EXPECT_TRUE(same_bytes(one, four)) << name_of(dtype);
    const std::vector<double> a = values(parts[0]), b = values(parts[1]), c = values(parts[2]), y = values(one);
    for (size_t i = 0; i < y.size(); ++i) {
      const double sum = (a[i] + b[i] + c[i]) / 4;
      ASSERT_EQ(y[i], is_float(dtype) ? sum : std::trunc(sum)) << name_of(dtype) << " at " << i;
    }
  }
}

TEST_P(Combine, DividesWholeNumbersTowardsZero) {
  const Tensor a = from_host(std::vector<int32_t>{7, -7, 8, -1, 0}, {5}),
               b = from_host(std::vector<int32_t>{1, 0, 0, -1, 0}, {5});
  const Tensor y({5}, DType::i32);
  combine(y, sources_of({a, b}), ReduceOp::avg, 1.0 / 3);
  EXPECT_EQ(values(y), (std::vector<double>{2, -2, 2, 0, 0}));
  const Tensor small = full({70}, 200, DType::u8), z({70}, DType::u8);
  combine(z, sources_of({small}), ReduceOp::avg, 1.0 / 300);  // by more than the dtype holds
  EXPECT_EQ(values(z), std::vector<double>(70, 0));
}

TEST_P(Combine, WholeNumbersWrapAround) {
  for (const int64_t n : {1, 200}) {
    const auto of = [n](double value, DType dtype) { return full({n}, value, dtype); };
    const auto result = [n](const Tensor& a, const Tensor& b, ReduceOp op) {
      const Tensor y({n}, a.dtype());
      combine(y, sources_of({a, b}), op, 1);
      return values(y).back();
    };
    EXPECT_EQ(result(of(200, DType::u8), of(100, DType::u8), ReduceOp::sum), 44);
    EXPECT_EQ(result(of(20, DType::u8), of(20, DType::u8), ReduceOp::product), 144);
    EXPECT_EQ(result(of(2147483647, DType::i32), of(1, DType::i32), ReduceOp::sum), -2147483648.0);
    EXPECT_EQ(result(of(65536, DType::i32), of(65536, DType::i32), ReduceOp::product), 0);
    EXPECT_EQ(result(of(-0x1p63, DType::i64), of(-0x1p63, DType::i64), ReduceOp::sum), 0);
  }
}

TEST_P(Combine, NaNStaysAndInfinityIsANumber) {
  constexpr double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64})
    for (const ReduceOp op : kOps)
      for (const int64_t n : {3, 131})
        for (int at = 0; at < 3; ++at) {
          std::vector<Tensor> x = {full({n}, 1, dtype), full({n}, -inf, dtype), full({n}, 2, dtype)};
          const Tensor y({n}, dtype);
          combine(y, sources_of(x), op, 1);
          const double clean = op == ReduceOp::max ? 2 : -inf;
          for (const double v : values(y)) ASSERT_EQ(v, clean) << name_of(dtype) << ' ' << name_of(op);
          x[size_t(at)] = full({n}, nan, dtype);
          combine(y, sources_of(x), op, 1);
          for (const double v : values(y))
            ASSERT_TRUE(std::isnan(v)) << name_of(dtype) << ' ' << name_of(op) << ", NaN in source " << at;
        }
}

TEST_P(Combine, HalvesAreRoundedOnce) {
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const int64_t n : {1, 100}) {
      // Half of the last place of 1: rounded each time, it would vanish.
      const double step = dtype == DType::f16 ? 0x1p-11 : 0x1p-8;
      const std::vector<Tensor> x = {full({n}, 1, dtype), full({n}, step, dtype), full({n}, step, dtype)};
      const Tensor y({n}, dtype);
      combine(y, sources_of(x), ReduceOp::sum, 1);
      for (const double v : values(y)) ASSERT_EQ(v, 1 + 2 * step) << name_of(dtype);
      combine(y, sources_of({x[0], x[1]}), ReduceOp::sum, 1);
      for (const double v : values(y)) ASSERT_EQ(v, 1) << name_of(dtype) << ": to even";
    }
}

// The conversions of the vector paths against those of f16 and bf16, for all bit patterns but NaNs.
TEST_P(Combine, EveryHalfIsConverted) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const Tensor bits({65536}, dtype), one = full({65536}, 1, dtype), y({65536}, dtype);
    auto* const x = static_cast<uint16_t*>(View(bits).data);
    for (int i = 0; i < 65536; ++i) x[i] = uint16_t(i);
    combine(y, sources_of({bits, one}), ReduceOp::product, 0.75);
    for (int64_t i = 0; i < 65536; ++i) {
      const float v = dtype == DType::f16 ? float(bits.data<f16>()[i]) : float(bits.data<bf16>()[i]);
      if (std::isnan(v)) continue;
      const uint16_t want = dtype == DType::f16 ? f16(v * 0.75f).bits : bf16(v * 0.75f).bits;
      ASSERT_EQ(static_cast<const uint16_t*>(View(y).data)[i], want) << name_of(dtype) << ' ' << i;
    }
  }
}

TEST_P(Combine, BooleansAndNoSourcesAreRefused) {
  const Tensor b({3}, DType::b8), f({3});
  EXPECT_NE(test::message_of<DTypeError>([&] { combine(b, sources_of({b}), ReduceOp::sum, 1); }).find("booleans"),
            std::string::npos);
  EXPECT_MENTIONS(test::message_of<Error>([&] {
                    combine(f, Sources{{}, 0}, ReduceOp::sum, 1);
                  }),
                  "expected 1 to 32 sources, got 0");
}

}  // namespace
}  // namespace ringtape
