#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "kernels/fill.h"
#include "kernels/kernel.h"
#include "tests/support/support.h"

// Precision and special values, compared with formulas in double: large and tiny numbers, ties, limits of the dtypes.
// The files that include this one choose a device and an instruction set.
namespace ringtape::test {

struct Where {
  Device device;
  CpuIsa isa{};  // of a CPU
};
inline std::string name_of_where(const testing::TestParamInfo<Where>& info) {
  return info.param.device.type == DeviceType::cuda ? "cuda" : std::string(name_of(info.param.isa));
}

// The CPU with every instruction set of this machine and this build.
inline std::vector<Where> every_cpu() {
  std::vector<Where> all;
  for (const CpuIsa isa : cpu_isas()) all.push_back({{}, isa});
  return all;
}

class Numerics : public testing::TestWithParam<Where> {
 protected:
  void SetUp() override {
    if (!available(GetParam().device)) GTEST_SKIP() << "no " << GetParam().device.str();
    if (GetParam().device.type == DeviceType::cpu) set_cpu_isa(GetParam().isa);
  }
  void TearDown() override { set_cpu_isa(before_); }

  Tensor numbers(const std::vector<double>& x, const Shape& shape, DType dtype = DType::f32) const {
    return cast(from_host(x, shape), dtype).copy_to(GetParam().device);
  }
  Tensor labels(const std::vector<int64_t>& x) const {
    return from_host(x, {int64_t(x.size())}).copy_to(GetParam().device);
  }
  Tensor uniform(int64_t n, double low, double high, DType dtype, uint64_t seed = 5) const {
    Tensor x({n}, dtype, GetParam().device);
    fill_uniform(x, RandomState{seed, Stream::test, 0}, low, high);
    return x;
  }
  // Logits (rows, classes) around `offset`, with a spread that the dtype can represent there.
  Tensor logits(int64_t rows, int64_t classes, double offset, DType dtype) const {
    Tensor x({rows, classes}, DType::f64);
    fill_normal(x, RandomState{3, Stream::test, 0}, offset, 2);
    return cast(x, dtype).copy_to(GetParam().device);
  }

  static constexpr double kInf = std::numeric_limits<double>::infinity();

 private:
  CpuIsa before_ = cpu_isa();
};

inline double epsilon(DType dtype) {
  return dtype == DType::f64 ? 0x1p-52 : dtype == DType::f32 ? 0x1p-23 : dtype == DType::f16 ? 0x1p-10 : 0x1p-7;
}
inline double largest(DType dtype) {
  return dtype == DType::f64 ? std::numeric_limits<double>::max() : double(std::numeric_limits<float>::max());
}

// For each row in long double: log softmax, the cross-entropy of label r mod C with smoothing, its gradient.
struct Rows {
  std::vector<double> log_p, loss, gradient;
  Rows(const Tensor& x, double smoothing) {
    const std::vector<double> v = values(x);
    const int64_t rows = x.dim(0), classes = x.dim(1);
    for (int64_t r = 0; r < rows; ++r) {
      const double* row = v.data() + r * classes;
      long double top = row[0], sum = 0, mean = 0;
      for (int64_t c = 0; c < classes; ++c) top = std::max<long double>(top, row[c]);
      for (int64_t c = 0; c < classes; ++c)
        sum += std::exp(row[c] - top), mean += (row[c] - top) / (long double)(classes);
      const int64_t label = r % classes;
      for (int64_t c = 0; c < classes; ++c) {
        log_p.push_back(double(row[c] - top - std::log(sum)));
        const long double p = std::exp(row[c] - top) / sum;
        gradient.push_back(double(p - smoothing / (long double)(classes) - (c == label ? 1 - smoothing : 0)));
      }
      loss.push_back(double(std::log(sum) - (1 - smoothing) * (row[label] - top) - smoothing * mean));
    }
  }
};

constexpr double kOffsets[] = {0, 100, -100, 1e3, 1e4, -1e4, 1e6};

TEST_P(Numerics, LogSoftmaxKeepsItsDigitsAroundAnyOffset) {
  for (DType dtype : {DType::f32, DType::f64})
    for (double offset : kOffsets) {
      SCOPED_TRACE(concat(dtype, " around ", offset));
      const Tensor x = leaf(logits(7, 10, offset, dtype)), y = log_softmax(x);
      const Rows want(x, 0);
      expect_close(y, numbers(want.log_p, {7, 10}, dtype), 2 * epsilon(dtype), 4 * epsilon(dtype), "log_softmax");
      const Tensor dy = uniform(70, -1, 1, dtype).window({7, 10}, {10, 1});
      backward(y, dy);
      const std::vector<double> g = values(dy);
      std::vector<double> dx;
      for (size_t i = 0; i < 70; ++i) {
        double sum = 0;
        for (size_t c = 0; c < 10; ++c) sum += g[i / 10 * 10 + c];
        dx.push_back(g[i] - std::exp(want.log_p[i]) * sum);
      }
      expect_close(grad(x), numbers(dx, {7, 10}, dtype), 8 * epsilon(dtype), 8 * epsilon(dtype), "gradient");
    }
}

TEST_P(Numerics, CrossEntropyKeepsItsDigitsAroundAnyOffset) {
  for (DType dtype : {DType::f32, DType::f64})
    for (double offset : kOffsets)
      for (double smoothing : {0.0, 0.1}) {
        SCOPED_TRACE(concat(dtype, " around ", offset, ", smoothing ", smoothing));
        const Tensor x = leaf(logits(7, 10, offset, dtype));
        const Tensor loss = cross_entropy(x, labels({0, 1, 2, 3, 4, 5, 6}), smoothing, LossReduction::none);
        const Rows want(x, smoothing);
        expect_close(loss, numbers(want.loss, {7}, dtype), 2 * epsilon(dtype), 4 * epsilon(dtype), "loss");
        backward(loss, numbers(std::vector<double>(7, 1), {7}, dtype));
        expect_close(grad(x), numbers(want.gradient, {7, 10}, dtype), 6 * epsilon(dtype), 2 * epsilon(dtype),
                     "gradient");
        const std::vector<double> dx = values(grad(x));
        for (size_t r = 0; r < 7; ++r) {
          double sum = 0;
          for (size_t c = 0; c < 10; ++c) sum += dx[10 * r + c];
          EXPECT_NEAR(sum, 0, 6 * epsilon(dtype)) << "row " << r;
        }
      }
}

// bf16 and f16 have steps of 64 and 8 there, but their logits are still exact.
TEST_P(Numerics, SixteenBitLogitsKeepTheirDigits) {
  const std::vector<double> x = {8192, 8192, 8256, 8320, 16384, 16384, 16448, 16384, 1, 2, 3, 4};
  for (DType dtype : {DType::bf16, DType::f16}) {
    SCOPED_TRACE(concat(dtype));
    const Tensor in = leaf(numbers(x, {3, 4}, dtype));
    const Rows want(in, 0.1);
    expect_close(log_softmax(in), numbers(want.log_p, {3, 4}, dtype), epsilon(dtype), 1e-6, "log_softmax");
    const Tensor loss = cross_entropy(in, labels({0, 1, 2}), 0.1, LossReduction::none);
    expect_close(loss, numbers(want.loss, {3}), 1e-6, 1e-6, "loss");
    backward(loss, numbers({1, 1, 1}, {3}));
    expect_close(grad(in), numbers(want.gradient, {3, 4}, dtype), epsilon(dtype), 1e-6, "gradient");
  }
}

TEST_P(Numerics, TiesOfHugeLogitsShareEvenly) {
  for (DType dtype : {DType::f32, DType::f64})
    for (double tie : {1e30, -1e30, largest(dtype), -largest(dtype)}) {
      SCOPED_TRACE(concat(dtype, " ", tie));
      const Tensor x = leaf(numbers({tie, tie, tie, tie}, {2, 2}, dtype));
      const double ln2 = std::log(2.0), eps = 2 * epsilon(dtype);
      expect_close(log_softmax(x), numbers({-ln2, -ln2, -ln2, -ln2}, {2, 2}, dtype), eps, 0, "log_softmax");
      expect_close(softmax(x), numbers({0.5, 0.5, 0.5, 0.5}, {2, 2}, dtype), eps, 0, "softmax");
      const Tensor loss = cross_entropy(x, labels({0, 1}), 0.2, LossReduction::none);
      expect_close(loss, numbers({ln2, ln2}, {2}, dtype), eps, 0, "loss");
      backward(loss, numbers({1, 1}, {2}, dtype));
      expect_close(grad(x), numbers({-0.4, 0.4, 0.4, -0.4}, {2, 2}, dtype), 4 * eps, 0, "gradient");
    }
}

// The difference of two logits may be twice the largest number: a loss is infinite only if it exceeds the largest
// number itself.
TEST_P(Numerics, SmoothedLossesOfTheLargestLogits) {
  for (DType dtype : {DType::f32, DType::f64}) {
    const double max = largest(dtype);
    const Tensor x = leaf(numbers({max, -max, max, -max, -max, -max}, {3, 2}, dtype));
    const Tensor loss = cross_entropy(x, labels({0, 1, 0}), 0.1, LossReduction::none);
    expect_close(loss, numbers({0.1 * max, kInf, std::log(2.0)}, {3}, dtype), 4 * epsilon(dtype), 0, "loss");
    backward(loss, numbers({1, 1, 1}, {3}, dtype));
    expect_close(grad(x), numbers({0.05, -0.05, 0.95, -0.95, -0.45, 0.45}, {3, 2}, dtype), 8 * epsilon(dtype), 0,
                 "gradient");
  }
}

TEST_P(Numerics, GradientsOfLogSumExpSumToOne) {
  for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16})
    for (double offset : {0.0, 100.0, 6e4, dtype == DType::f16 ? 1e4 : 1e6}) {
      SCOPED_TRACE(concat(dtype, " around ", offset));
      const Tensor x = leaf(cast(full({2, 1000}, offset, DType::f64), dtype).copy_to(GetParam().device));
      backward(logsumexp(x, {1}), numbers({1, 1}, {2}, dtype));
      expect_close(grad(x), numbers(std::vector<double>(2000, 1e-3), {2, 1000}, dtype), 2 * epsilon(dtype), 0,
                   "gradient");
    }
}

TEST_P(Numerics, TheGradientOfAQuotientByItsDivisorIsInRangeWhereItsValueIs) {
  const std::vector<double> special = {0,    1e-40, -1e-38, 1e-30, -1e-23, 1e-20, 1e-10, -0.5,  1,    3,
                                       1e10, -1e15, 1.8e19, 1e20,  -1e25,  1e30,  3e38,  -3e38, kInf, -kInf};
  for (DType dtype : {DType::f32, DType::bf16}) {
    std::vector<double> a, b, want;
    for (double x : special)
      for (double y : special)
        if (y != 0) a.push_back(x), b.push_back(y);
    const int64_t n = int64_t(a.size());
    const Tensor num = numbers(a, {n}, dtype), den = leaf(numbers(b, {n}, dtype));
    const std::vector<double> x = values(num), y = values(den);
    for (size_t i = 0; i < a.size(); ++i) want.push_back(-(x[i] / y[i]) / y[i]);
    backward(num / den, numbers(std::vector<double>(a.size(), 1), {n}, dtype));
    // The quotient may be a very small number with few significant digits.
    expect_close(grad(den), numbers(want, {n}, dtype), dtype == DType::f32 ? 2e-5 : epsilon(dtype), 3e-45,
                 concat("-a / b^2, ", dtype));
  }
}

TEST_P(Numerics, TheGradientOfALogarithmIsInRangeWhereItsValueIs) {
  const Tensor x = leaf(numbers({1e-40, 1e-40, -1e-40, 1, 1e38, 1e-30}, {6}));
  backward(log(x), numbers({0, 1e-10, 0, 2, 1e30, 1}, {6}));
  EXPECT_EQ(values(grad(x))[0], 0);
  EXPECT_EQ(values(grad(x))[2], 0);
  expect_close(grad(x), numbers({0, 1e30, 0, 2, 1e-8, 1e30}, {6}), 1e-5, 0, "dy / x");
}

TEST_P(Numerics, GeluVanishesOnTheLeft) {
  const Tensor x = uniform(20000, -8, -4, DType::f32);
  const std::vector<double> in = values(x), y = values(gelu(x));
  for (size_t i = 0; i < in.size(); ++i) {
    ASSERT_NEAR(y[i], in[i] * 0.5 * std::erfc(-in[i] / std::sqrt(2.0)), 3e-7 * -in[i]) << "gelu at " << in[i];
    ASSERT_LE(y[i], 0) << "gelu at " << in[i];
  }
}

TEST_P(Numerics, EqualNumbersHaveNoVariance) {
  for (DType dtype : {DType::f32, DType::f64})
    for (double v : {0.1, -1.0 / 3, 1e8 / 7, largest(dtype), -largest(dtype)})
      for (int64_t n : {2, 3, 4, 5, 7, 100, 1000}) {
        SCOPED_TRACE(concat(n, " times ", v, ", ", dtype));
        const Tensor x = leaf(numbers(std::vector<double>(size_t(3 * n), v), {3, n}, dtype));
        const Tensor columns = contiguous(transpose(x.detach()));
        EXPECT_EQ(values(var(columns, {0})), (std::vector<double>{0, 0, 0})) << "of columns";
        const Tensor y = var(x, {1});
        EXPECT_EQ(values(y), (std::vector<double>{0, 0, 0})) << "of rows";
        backward(y, numbers({1, 1, 1}, {3}, dtype));
        for (double g : values(grad(x))) ASSERT_EQ(g, 0);
      }
}

// Differences from a mean that is itself rounded; on CUDA each partial mean is of a few numbers.
TEST_P(Numerics, VarianceKeepsDigitsAroundAnOffset) {
  for (double offset : {0.0, 1e3, 1e4}) {
    const Tensor x = logits(5, 300, offset, DType::f32);
    const Tensor want = numbers(values(var(cast(x, DType::f64), {1})), {5});
    const double tolerance = 2e-6 + 2e-8 * offset;
    expect_close(var(x, {1}), want, tolerance, 0, concat("rows around ", offset));
    expect_close(var(contiguous(transpose(x)), {0}), want, tolerance, 0, concat("columns around ", offset));
  }
}

TEST_P(Numerics, ANumberIsRoundedToWhatItIsComparedWith) {
  for (DType dtype : {DType::bf16, DType::f16, DType::f32, DType::f64}) {
    SCOPED_TRACE(concat(dtype));
    const Tensor x = numbers({0.1}, {1}, dtype);
    EXPECT_EQ(values(equal(x, 0.1))[0], 1);
    EXPECT_EQ(values(not_equal(x, 0.1))[0], 0);
    EXPECT_EQ(values(less(x, 0.1))[0], 0);
    EXPECT_EQ(values(greater(x, 0.1))[0], 0);
    EXPECT_EQ(values(less_equal(x, 0.1))[0], 1);
    EXPECT_EQ(values(greater_equal(x, 0.1))[0], 1);
  }
  EXPECT_EQ(values(less(numbers({2, 3}, {2}, DType::i64), 2.5)), (std::vector<double>{1, 0}));
}

TEST_P(Numerics, UniformNumbersStayBelowTheirEnd) {
  constexpr int64_t kDraws = 100000;
  struct Range {
    double low, high;
  };
  for (DType dtype : {DType::bf16, DType::f16, DType::f32, DType::f64}) {
    const double few = 16 * epsilon(dtype);
    const std::vector<Range> ranges = {{0, 1},      {-1, 0},      {1, 2},         {-2, -1}, {0, 1e-3},   {3, 3.3},
                                       {-0.3, 0.7}, {1, 1 + few}, {-1 - few, -1}, {0, 6e4}, {-6e4, 6e4}, {-1e-3, 0}};
    for (const Range& r : ranges) {
      SCOPED_TRACE(concat(dtype, " in [", r.low, ", ", r.high, ")"));
      const std::vector<double> x = values(uniform(kDraws, r.low, r.high, dtype));
      const auto [least, most] = std::minmax_element(x.begin(), x.end());
      EXPECT_LT(*most, r.high);
      EXPECT_GT(*most,
                r.high - 0.01 * (r.high - r.low) - 2 * epsilon(dtype) * std::max(std::fabs(r.low), std::fabs(r.high)));
      EXPECT_GE(*least, values(numbers({r.low}, {1}, dtype))[0]);
    }
  }
  // A bound that the dtype cannot represent, and an empty range.
  for (double v : values(uniform(1000, 65000, 70000, DType::f16))) ASSERT_LE(v, 65504);
  for (double v : values(uniform(100, 0.5, 0.5, DType::f32))) ASSERT_EQ(v, 0.5);
}

// A seed must give the same training in every version: the first 24 bits of a word, in f32 and in f64.
TEST_P(Numerics, UniformNumbersAreThoseOfTheirWords) {
  constexpr int64_t kDraws = 10001;
  const std::vector<double> x = values(uniform(kDraws, -3, 4, DType::f32)),
                            unit = values(uniform(kDraws, 0, 1, DType::f64));
  std::set<double> different;
  int64_t finer = 0;
  for (int64_t i = 0; i < kDraws; ++i) {
    const float u = uniform_from_bits(philox(5, uint64_t(Stream::test), uint64_t(i / 4)).x[i % 4]);
    ASSERT_EQ(x[size_t(i)], double(float(-3 + 7 * double(u)))) << i;
    ASSERT_EQ(std::floor(unit[size_t(i)] * 0x1p24), double(u) * 0x1p24) << i;
    different.insert(unit[size_t(i)]);
    finer += std::fmod(unit[size_t(i)] * 0x1p52, 1) != 0;
  }
  EXPECT_EQ(different.size(), size_t(kDraws));
  EXPECT_NEAR(double(finer) / kDraws, 0.5, 0.05) << "the last of 53 bits";
}

TEST_P(Numerics, OneMatrixForABatchHasAGradientOfOneRounding) {
  for (DType dtype : {DType::f16, DType::bf16}) {
    const Tensor a = uniform(200 * 3 * 4, -1, 1, dtype, 1).window({200, 3, 4}, {12, 4, 1});
    const Tensor dy = uniform(200 * 3 * 2, -1, 1, dtype, 2).window({200, 3, 2}, {6, 2, 1});
    const Tensor b = leaf(uniform(8, -1, 1, dtype, 3).window({4, 2}, {2, 1}));
    backward(matmul(a, b), dy);
    const std::vector<double> x = values(a), g = values(dy), got = values(grad(b));
    for (size_t p = 0; p < 4; ++p)
      for (size_t j = 0; j < 2; ++j) {
        double sum = 0;
        for (size_t row = 0; row < 600; ++row) sum += x[4 * row + p] * g[2 * row + j];
        EXPECT_NEAR(got[2 * p + j], sum, 0.51 * epsilon(dtype) * std::fabs(sum) + 1e-5)
            << name_of(dtype) << ' ' << p << ", " << j;
      }
  }
}

}  // namespace ringtape::test
