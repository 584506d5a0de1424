// Matrix products of bf16 by each unit: by itself if the machine has it, else by its emulation.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "kernels/arithmetic.h"
#include "kernels/bf16_unit.h"
#include "kernels/matmul.h"
#include "tests/support/isas.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

using test::same_bytes;
using test::values;
using test::with_threads;

struct Unit : ArithmeticScope {
  explicit Unit(Bf16Unit unit, bool emulated = false)
      : ArithmeticScope(&Arithmetic::bf16, Bf16Choice{unit, emulated}) {}
};

class MatmulBf16 : public testing::TestWithParam<Bf16Unit> {};
INSTANTIATE_TEST_SUITE_P(Units, MatmulBf16, testing::Values(Bf16Unit::avx512_bf16, Bf16Unit::amx),
                         [](const auto& info) { return std::string(name_of(info.param)); });

// y (m, n) = a (m, k) b (k, n); a and b may be transposed in memory.
struct Product {
  int64_t m, n, k;
  bool a_transposed, b_transposed;
  std::string name() const {
    return std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k) + (a_transposed ? ", a^T" : "") +
           (b_transposed ? ", b^T" : "");
  }
};

std::vector<Product> products() {
  std::vector<Product> out;
  const int64_t sizes[][3] = {{1, 1, 1},      {1, 10, 512},   {7, 5, 3},      {64, 64, 64},   {13, 70, 33},
                              {49, 130, 97},  {200, 300, 96}, {35, 33, 1100}, {5, 600, 2},    {3, 4, 0},
                              {100, 17, 515}, {32, 32, 32},   {33, 40, 65},   {100, 17, 130}, {16, 200, 64},
                              {64, 96, 31},   {128, 10, 512}};
  for (const auto& s : sizes)
    for (int t = 0; t < 4; ++t) out.push_back({s[0], s[1], s[2], t % 2 > 0, t / 2 > 0});
  return out;
}

Tensor product_of(const Tensor& a, const Tensor& b) {
  Tensor y({a.dim(0), b.dim(1)}, DType::bf16);
  matmul_forward(y.window({1, y.dim(0), y.dim(1)}, {0, y.dim(1), 1}),
                 a.window({1, a.dim(0), a.dim(1)}, {0, a.strides()[0], a.strides()[1]}),
                 b.window({1, b.dim(0), b.dim(1)}, {0, b.strides()[0], b.strides()[1]}));
  return y;
}

struct Operands {
  Tensor a, b;
  explicit Operands(const Product& p) {
    manual_seed(5);
    const auto draw = [](int64_t rows, int64_t cols, bool transposed) {
      const Tensor x = cast(randn(transposed ? Shape{cols, rows} : Shape{rows, cols}), DType::bf16);
      return transposed ? transpose(x, 0, 1) : x;
    };
    a = draw(p.m, p.k, p.a_transposed), b = draw(p.k, p.n, p.b_transposed);
  }
  Tensor product() const { return product_of(a, b); }
};

// Results are rounded to bf16, sums to f32.
void expect_near(const Product& p, const Tensor& got, const Operands& o) {
  const std::vector<double> a = values(o.a), b = values(o.b), y = values(got);
  ASSERT_EQ(int64_t(y.size()), p.m * p.n);
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = 0; j < p.n; ++j) {
      double sum = 0, size = 0;
      for (int64_t q = 0; q < p.k; ++q) {
        const double x = a[size_t(i * p.k + q)] * b[size_t(q * p.n + j)];
        sum += x, size += std::fabs(x);
      }
      ASSERT_NEAR(y[size_t(i * p.n + j)], sum, 0x1p-8 * std::fabs(sum) + 1e-6 * size)
          << p.name() << " at " << i << ", " << j;
    }
}

TEST_P(MatmulBf16, IsCloseToExactSums) {
  const Unit unit(GetParam());
  for (const Product& p : products()) {
    const Operands o(p);
    expect_near(p, o.product(), o);
  }
}

TEST_P(MatmulBf16, TheEmulationHasTheSameBitsInEveryInstructionSet) {
  for (const Product& p : products()) {
    const Operands o(p);
    const Tensor want = [&] {
      const Unit unit(GetParam());
      return o.product();
    }();
    test::with_every_isa([&] {
      const Unit emulated(GetParam(), true);
      EXPECT_TRUE(same_bytes(o.product(), want)) << p.name();
    });
  }
}

TEST_P(MatmulBf16, DoesNotDependOnTheNumberOfThreads) {
  const Unit unit(GetParam());
  for (const Product& p : products()) {
    const Operands o(p);
    const Tensor one = with_threads(1, [&] { return o.product(); });
    for (int count : {2, 3, 5})
      EXPECT_TRUE(same_bytes(one, with_threads(count, [&] { return o.product(); })))
          << p.name() << ", " << count << " threads";
  }
}

TEST_P(MatmulBf16, OfALayerAddsTheBiasBeforeItRounds) {
  const Unit unit(GetParam());
  manual_seed(6);
  const Tensor x = cast(randn({37, 65}), DType::bf16), w = cast(randn({300, 65}), DType::bf16),
               b = cast(randn({300}), DType::bf16);
  Tensor y({37, 300}, DType::bf16);
  const std::vector<double> xs = values(x), ws = values(w), bs = values(b);
  for (const Activation f : {Activation::none, Activation::relu}) {
    linear_forward(y, x, w, b, f);
    const std::vector<double> ys = values(y);
    for (size_t i = 0; i < 37; ++i)
      for (size_t j = 0; j < 300; ++j) {
        double sum = bs[j];
        for (size_t q = 0; q < 65; ++q) sum += xs[i * 65 + q] * ws[j * 65 + q];
        if (f == Activation::relu) sum = std::max(sum, 0.0);
        ASSERT_NEAR(ys[i * 300 + j], sum, 0x1.01p-8 * std::fabs(sum) + 1e-4) << i << ", " << j;
      }
  }
}

TEST_P(MatmulBf16, DoesNotReadBeyondTheDepth) {
  const Unit unit(GetParam());
  manual_seed(7);
  const Tensor a = cast(randn({9, 8}), DType::bf16), b = cast(randn({8, 6}), DType::bf16);
  for (int64_t i = 0; i < 9; ++i) a.data<bf16>()[i * 8 + 7] = bf16(INFINITY);
  for (int64_t j = 0; j < 6; ++j) b.data<bf16>()[7 * 6 + j] = bf16(INFINITY);
  for (double v : values(product_of(a.window({9, 7}, {8, 1}), b.window({7, 6}, {6, 1})))) EXPECT_TRUE(std::isfinite(v));
}

}  // namespace
}  // namespace ringtape
