// Attention by tiles beside softmax(q k^T) v, whose scores are stored.
#include <cmath>
#include <limits>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "core/devices.h"
#include "core/storage.h"
#include "tests/support/isas.h"
#include "tests/support/noise.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

using test::expect_close;
using test::noise;
using test::same_bytes;
using test::with_threads;

struct Case {
  Shape q, k, v;
  bool causal;
};
// One tile and several of queries and of keys, which have 112 and 256 with AVX-512; whole vectors and rests.
const std::vector<Case> kCases = {{{1, 1}, {1, 1}, {1, 1}, false},
                                  {{2, 3, 65, 64}, {2, 3, 65, 64}, {2, 3, 65, 64}, false},
                                  {{300, 6}, {600, 6}, {600, 5}, false},
                                  {{600, 6}, {300, 6}, {300, 5}, true},
                                  {{2, 257, 17}, {2, 113, 17}, {2, 113, 33}, true},
                                  {{113, 400}, {20, 400}, {20, 3}, false},
                                  {{1, 2, 112, 32}, {1, 2, 256, 32}, {1, 2, 256, 96}, false}};

Tensors inputs(const Case& c, DType dtype) {
  Tensors out;
  for (const Shape& shape : {c.q, c.k, c.v}) out.push_back(leaf(cast(noise(shape, 7 + out.size()), dtype)));
  return out;
}

Tensor plain(const Tensors& t, bool causal) {
  const int64_t n = t[0].dim(-2), m = t[1].dim(-2);
  Tensor scores = matmul(t[0], transpose(t[1])) / std::sqrt(double(t[0].dim(-1)));
  if (causal) scores = masked_fill(scores, greater(triu(full({n, m}, 1, DType::f64), 1), 0.5), -INFINITY);
  return matmul(softmax(scores), t[2]);
}

// y and the gradients of q, k and v, for one gradient of y.
Tensors results(const Tensor& y, const Tensors& t) {
  backward(y, cast(noise(y.shape(), 99), y.dtype()));
  return {contiguous(y.detach()), contiguous(grad(t[0])), contiguous(grad(t[1])), contiguous(grad(t[2]))};
}
Tensors attention(const Case& c, DType dtype) {
  const Tensors t = inputs(c, dtype);
  return results(scaled_dot_product_attention(t[0], t[1], t[2], c.causal), t);
}

TEST(Attention, IsThePlainFormOnEveryInstructionSet) {
  for (const Case& c : kCases) {
    const Tensors t = inputs(c, DType::f64), expected = results(plain(t, c.causal), t);
    const char* const names[] = {"y", "dq", "dk", "dv"};
    test::with_every_isa([&] {
      for (const auto& [dtype, tolerance] : {std::pair{DType::f64, 1e-13}, {DType::f32, 2e-6}, {DType::f16, 4e-3}}) {
        // 16-bit inputs are rounded before: the plain form has the same ones.
        Tensors wanted = expected;
        if (dtype == DType::f16) {
          const Tensors rounded = inputs(c, dtype);
          Tensors wide;
          for (const Tensor& x : rounded) wide.push_back(leaf(cast(x.detach(), DType::f64)));
          const Tensor y = plain(wide, c.causal);
          backward(y, cast(cast(noise(y.shape(), 99), dtype), DType::f64));
          wanted = {y.detach(), grad(wide[0]), grad(wide[1]), grad(wide[2])};
        }
        const Tensors found = attention(c, dtype);
        for (size_t i = 0; i < found.size(); ++i)
          expect_close(cast(found[i], DType::f64), wanted[i], tolerance, tolerance * 4, names[i]);
      }
    });
  }
}

TEST(Attention, OfFewHeadsHasTheSameBytesWithAnyThreads) {
  for (const Case& c : kCases)
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Tensors one = with_threads(1, [&] { return attention(c, dtype); });
      for (const int threads : {2, 3, 5}) {
        const Tensors more = with_threads(threads, [&] { return attention(c, dtype); });
        for (size_t i = 0; i < one.size(); ++i)
          EXPECT_TRUE(same_bytes(one[i], more[i])) << threads << " threads, result " << i;
      }
    }
}

TEST(Attention, KeepsANaNInItsRow) {
  const Case c{{5, 8}, {40, 8}, {40, 8}, false};
  const Tensors t = inputs(c, DType::f32);
  t[0].data<float>()[8] = NAN;
  const Tensor y = scaled_dot_product_attention(t[0].detach(), t[1].detach(), t[2].detach());
  for (int64_t i = 0; i < 5; ++i)
    for (int64_t d = 0; d < 8; ++d) EXPECT_EQ(std::isnan(y.data<float>()[i * 8 + d]), i == 1) << i << ", " << d;
}

TEST(Attention, LargeScoresOverflowNowhere) {
  const Tensor q = full({3, 4}, 1e4, DType::f32), k = full({300, 4}, 1e4, DType::f32),
               v = full({300, 2}, 3, DType::f32);
  expect_close(scaled_dot_product_attention(q, k, v), full({3, 2}, 3, DType::f32), 1e-6, 0, "equal scores");
  expect_close(scaled_dot_product_attention(q, -k, v), full({3, 2}, 3, DType::f32), 1e-6, 0, "equal low scores");
}

// The plain form keeps scores of 4,096 x 4,096: 64 MiB, and as many weights.
TEST(Attention, MemoryIsLinearInTheLength) {
  const auto peak = [](int64_t length) {
    const Tensor x = cast(noise({length, 8}, 1), DType::f32);
    const Tensor q = leaf(x), k = leaf(x), v = leaf(x);
    reset_peak_memory({});
    const int64_t before = memory_stats({}).current;
    backward(sum(scaled_dot_product_attention(q, k, v)));
    return memory_stats({}).peak - before;
  };
  const auto [shorter, longer] = with_threads(2, [&] { return std::pair(peak(1024), peak(4096)); });  // sums of each
  EXPECT_LE(longer, 4 * shorter + 4096);
  EXPECT_LT(longer, 4096 * 4096 * int64_t{sizeof(float)} / 16);
}

TEST(Attention, ItsHeadsLieSideBySide) {
  const Tensor x = cast(noise({2, 3, 5, 4}, 1), DType::f32);
  const Tensor y = transpose(scaled_dot_product_attention(x, x, x), 1, 2);
  EXPECT_TRUE(View(y).contiguous());
}

}  // namespace
}  // namespace ringtape
