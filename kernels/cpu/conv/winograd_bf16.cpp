// Winograd convolution of bf16 whose products have bf16 operands. The rounding of V and U to bf16 is most of the error,
// and F(2x4) has less of it than F(4x4): forward, where the error of each layer goes through all the following ones.
#include "kernels/cpu/conv/conv2d.h"
#include "kernels/cpu/conv/winograd.h"
#include "kernels/cpu/vector/avx512_bf16.h"
#include "kernels/cpu/vector/isa.h"

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

void RT_UNIT::winograd_bf16_forward(View y, View x, View w, View b, Window p) {
  Winograd<bf16, Bf16Operand, F23, F43>(winograd_forward_operands<bf16>(y, x, w, b, p)).run(y.device);
}

void RT_UNIT::winograd_bf16_backward_data(View dx, View dy, View w, Window p) {
  Winograd<bf16, Bf16Operand, F43, F43>(winograd_backward_operands<bf16>(dx, dy, w, p)).run(dx.device);
}

RT_ISA_END
