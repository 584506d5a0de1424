// Matrix products of bf16 by AMX: the unit if the machine has it, else its emulation.
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "kernels/bf16_unit.h"
#include "kernels/matmul.h"
#include "tests/support/isas.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

using test::same_bytes;
using test::values;
using test::with_threads;

struct Unit {
  explicit Unit(bool emulated = false) { set_bf16_choice(Bf16Choice{Bf16Unit::amx, emulated}); }
  ~Unit() { set_bf16_choice({}); }
};

struct Product {
  int64_t m, n, k;
  bool a_transposed, b_transposed;
  std::string name() const {
    return std::to_string(m) + " " + std::to_string(n) + " " + std::to_string(k) + (a_transposed ? " a^T" : "") +
           (b_transposed ? " b^T" : "");
  }
};

Tensor matrix(int64_t rows, int64_t cols, bool transposed) {
  const Tensor x = cast(randn(transposed ? Shape{cols, rows} : Shape{rows, cols}), DType::bf16);
  return transposed ? transpose(x) : x;
}

Tensor product_of(const Tensor& a, const Tensor& b) {
  Tensor y({a.dim(0), b.dim(1)}, DType::bf16);
  matmul_forward(y.window({1, y.dim(0), y.dim(1)}, {0, y.dim(1), 1}),
                 a.window({1, a.dim(0), a.dim(1)}, {0, a.strides()[0], a.strides()[1]}),
                 b.window({1, b.dim(0), b.dim(1)}, {0, b.strides()[0], b.strides()[1]}));
  return y;
}

std::vector<Product> products() {
  std::vector<Product> out;
  for (const bool a : {false, true})
    for (const bool b : {false, true})
      for (const auto& [m, n, k] : {std::array<int64_t, 3>{32, 32, 32}, {33, 40, 65}, {100, 17, 130}, {16, 200, 64},
                                    {64, 96, 31}, {128, 10, 512}})
        out.push_back({m, n, k, a, b});
  return out;
}

TEST(MatmulAmx, IsCloseToExactSums) {
  const Unit unit;
  for (const Product& p : products()) {
    manual_seed(7);
    const Tensor a = matrix(p.m, p.k, p.a_transposed), b = matrix(p.k, p.n, p.b_transposed);
    const std::vector<double> x = values(a), w = values(b), y = values(product_of(a, b));
    double error = 0, norm = 0;
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < p.n; ++j) {
        double sum = 0;
        for (int64_t d = 0; d < p.k; ++d) sum += x[size_t(i * p.k + d)] * w[size_t(d * p.n + j)];
        const double e = y[size_t(i * p.n + j)] - sum;
        error += e * e, norm += sum * sum;
      }
    EXPECT_LE(error, norm * 3e-3 * 3e-3) << p.name();
  }
}

TEST(MatmulAmx, TheEmulationHasTheSameBitsInEveryInstructionSetAndForAnyThreads) {
  for (const Product& p : products()) {
    manual_seed(8);
    const Tensor a = matrix(p.m, p.k, p.a_transposed), b = matrix(p.k, p.n, p.b_transposed);
    const Tensor want = [&] {
      const Unit unit;
      return with_threads(1, [&] { return product_of(a, b); });
    }();
    for (const int count : {2, 3, 5}) {
      const Unit unit;
      EXPECT_TRUE(same_bytes(with_threads(count, [&] { return product_of(a, b); }), want)) << p.name() << count;
    }
    test::with_every_isa([&] {
      const Unit emulated(true);
      EXPECT_TRUE(same_bytes(product_of(a, b), want)) << p.name();
    });
  }
}

TEST(MatmulAmx, OfLinearLayersAddsTheBiasBeforeRounding) {
  const Unit unit;
  manual_seed(9);
  const Tensor x = matrix(40, 64, false), w = matrix(50, 64, false), b = cast(randn({50}), DType::bf16);
  Tensor y({40, 50}, DType::bf16);
  linear_forward(y, x, w, b, Activation::relu);
  const std::vector<double> xs = values(x), ws = values(w), bs = values(b), got = values(y);
  for (int64_t i = 0; i < 40; ++i)
    for (int64_t j = 0; j < 50; ++j) {
      double sum = bs[size_t(j)];
      for (int64_t d = 0; d < 64; ++d) sum += xs[size_t(i * 64 + d)] * ws[size_t(j * 64 + d)];
      EXPECT_NEAR(got[size_t(i * 50 + j)], std::max(sum, 0.0), 0.51 * 0x1p-7 * std::abs(sum) + 1e-4);
    }
}

}  // namespace
}  // namespace ringtape
