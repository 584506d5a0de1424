// Attention of bf16 by each unit: by itself if the machine has it, and by its emulation.
#include "autograd/create.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "kernels/arithmetic.h"
#include "kernels/bf16_unit.h"
#include "tests/support/isas.h"
#include "tests/support/noise.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

using test::noise;

struct Unit : ArithmeticScope {
  explicit Unit(Bf16Unit unit, bool emulated = false)
      : ArithmeticScope(&Arithmetic::bf16, Bf16Choice{unit, emulated}) {}
};
class AttentionBf16 : public testing::TestWithParam<Bf16Unit> {};
INSTANTIATE_TEST_SUITE_P(Units, AttentionBf16, testing::Values(Bf16Unit::avx512_bf16, Bf16Unit::amx),
                         [](const auto& info) { return std::string(name_of(info.param)); });

Tensors attention(const Tensors& from, DType dtype, bool causal) {
  Tensors t;
  for (size_t i = 0; i < 3; ++i) t.push_back(leaf(cast(from[i], dtype)));
  const Tensor y = scaled_dot_product_attention(t[0], t[1], t[2], causal);
  backward(y, cast(from[3], dtype));
  return {contiguous(y.detach()), contiguous(grad(t[0])), contiguous(grad(t[1])), contiguous(grad(t[2]))};
}

// Keys that lie as columns are read where they are.
TEST_P(AttentionBf16, OfKeysInAnotherOrderHasTheSameBytes) {
  const Unit emulated(GetParam(), true);
  for (const auto& [keys, features] : {std::pair<int64_t, int64_t>{98, 32}, {6, 1}, {97, 16}}) {
    Tensors x;
    for (int64_t length : {int64_t{40}, keys, keys, int64_t{40}})
      x.push_back(cast(noise({2, length, features}, 3 + x.size()), DType::bf16));
    const Tensors want = attention(x, DType::bf16, false);
    const Tensor q = leaf(x[0]), k = leaf(contiguous(transpose(x[1]))), v = leaf(contiguous(transpose(x[2])));
    const Tensor y = scaled_dot_product_attention(q, transpose(k), transpose(v));
    backward(y, x[3]);
    const Tensors found = {contiguous(y.detach()), contiguous(grad(q)), contiguous(transpose(grad(k))),
                           contiguous(transpose(grad(v)))};
    for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(test::same_bytes(found[i], want[i])) << keys << " " << i;
  }
}

// Weights and gradients of scores are rounded to bf16 between two products: a few parts in 2^8 of the largest.
TEST_P(AttentionBf16, IsNearThatOfF64AndEqualToItsEmulation) {
  for (const auto& [n, m, d, e, masked] : std::vector<std::tuple<int64_t, int64_t, int64_t, int64_t, bool>>{
           {1, 1, 1, 1, false}, {65, 65, 64, 64, false}, {300, 301, 31, 17, false}, {130, 97, 32, 66, true}}) {
    const bool causal = masked;
    Tensors x;
    for (const Shape& shape : {Shape{2, n, d}, Shape{2, m, d}, Shape{2, m, e}, Shape{2, n, e}})
      x.push_back(cast(cast(noise(shape, 3 + x.size()), DType::bf16), DType::f64));
    const Tensors exact = attention(x, DType::f64, causal);
    test::with_every_isa([&] {
      const Tensors found = [&] {
        const Unit emulated(GetParam(), true);
        return attention(x, DType::bf16, causal);
      }();
      const char* const names[] = {"y", "dq", "dk", "dv"};
      for (size_t i = 0; i < found.size(); ++i)
        test::expect_close(cast(found[i], DType::f64), exact[i], 0.02, 0.03, names[i]);
      if (!has(GetParam()) || cpu_isa() != CpuIsa::avx512) return;
      const Unit native(GetParam());
      const Tensors real = attention(x, DType::bf16, causal);
      for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(test::same_bytes(found[i], real[i])) << names[i];
    });
  }
}

}  // namespace
}  // namespace ringtape
