#pragma once
#include "kernels/cpu/conv/winograd_panels.h"
#include "kernels/cpu/vector/avx512_bf16.h"

RT_ISA_BEGIN

namespace {

// What the products multiply. Sums are f32, and so are the transforms.
struct Bf16Operand {
  using Type = bf16;
  static constexpr int adjacent = 2;
  static constexpr int64_t product_depth = 512, own_product_depth = 256;
  static int64_t block_tiles(int64_t depth) { return depth < 256 ? 24 : 48; }

  RT_INLINE static void store(bf16* p, Vec<float> x) { Avx512Bf16::store(p, x); }
  RT_INLINE static void store_result(bf16* p, Vec<float> x, int64_t count) { store_rounded(p, x, count); }
  // The same for pairs: transform(1, write) gives the second element.
  template <int points, class F> RT_INLINE static void store_weights(bf16* to, int64_t stride, const F& transform) {
    Vec<float> first[points];
    transform(0, [&](int point, Vec<float> x) { first[point] = x; });
    transform(1, [&](int point, Vec<float> x) { Avx512Bf16::store_pairs(to + point * stride, first[point], x); });
  }
};

}  // namespace

RT_ISA_END
