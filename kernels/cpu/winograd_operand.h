#pragma once
#include "kernels/cpu/avx512_bf16.h"
#include "kernels/cpu/vector.h"

// What the products of a Winograd convolution multiply.
RT_ISA_BEGIN

namespace {

// Tiles of 4x4 outputs per block, or as many outputs in smaller ones. V and M of 28 stay in the L2 cache with 128
// channels. With more channels the weights, which are read once per block, matter more.
struct F32Operand {
  using Type = float;
  static constexpr int adjacent = 1;
  // Depth of a product, for weights transformed beforehand and for weights transformed on the fly, which stay in the L2
  // cache.
  static constexpr int64_t product_depth = 256, own_product_depth = 128;
  static int64_t block_tiles(int64_t depth) { return depth < 192 ? 28 : 56; }

  RT_INLINE static void store(float* p, Vec<float> x) { ringtape::cpu::RT_ISA::store(p, x); }
  template <class T>
  RT_INLINE static void store_result(T* p, Vec<float> x, int64_t count) {
    store_converted(p, x, count);
  }
  // transform(0, write) gives the points of one element of the depth, which are `stride` apart.
  template <int points, class F>
  RT_INLINE static void store_weights(float* to, int64_t stride, const F& transform) {
    transform(0, [&](int point, Vec<float> x) { store(to + point * stride, x); });
  }
};

// Sums are f32, and so are the transforms.
template <class Unit>
struct Bf16Operand {
  using Type = bf16;
  static constexpr int adjacent = 2;
  static constexpr int64_t product_depth = 512, own_product_depth = 256;
  static int64_t block_tiles(int64_t depth) { return depth < 256 ? 24 : 48; }

  RT_INLINE static void store(bf16* p, Vec<float> x) { Unit::store(p, x); }
  RT_INLINE static void store_result(bf16* p, Vec<float> x, int64_t count) { store_rounded<Unit>(p, x, count); }
  // The same for pairs: transform(1, write) gives the second element.
  template <int points, class F>
  RT_INLINE static void store_weights(bf16* to, int64_t stride, const F& transform) {
    Vec<float> first[points];
    transform(0, [&](int point, Vec<float> x) { first[point] = x; });
    transform(1, [&](int point, Vec<float> x) { Unit::store_pairs(to + point * stride, first[point], x); });
  }
};

}  // namespace

RT_ISA_END
