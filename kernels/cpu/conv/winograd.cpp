#include "kernels/cpu/conv/winograd.h"

#include "kernels/cpu/conv/conv2d.h"
#include "kernels/cpu/vector/isa.h"

RT_ISA_BEGIN

namespace {

// What the products multiply.
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
  template <class T> RT_INLINE static void store_result(T* p, Vec<float> x, int64_t count) {
    store_converted(p, x, count);
  }
  // transform(0, write) gives the points of one element of the depth, which are `stride` apart.
  template <int points, class F> RT_INLINE static void store_weights(float* to, int64_t stride, const F& transform) {
    transform(0, [&](int point, Vec<float> x) { store(to + point * stride, x); });
  }
};

// Not for f64.
template <class F> void dispatch_winograd(DType dtype, F&& f) {
  dispatch_float(dtype, [&]<class T>() {
    if constexpr (!std::is_same_v<T, double>) f.template operator()<T>();
  });
}

}  // namespace

void winograd_forward(View y, View x, View w, View b, Window p) {
  dispatch_winograd(y.dtype, [&]<class T>() {
    Winograd<T, F32Operand, F43, F43>(winograd_forward_operands<T>(y, x, w, b, p)).run(y.device);
  });
}

void winograd_backward_data(View dx, View dy, View w, Window p) {
  dispatch_winograd(dx.dtype, [&]<class T>() {
    Winograd<T, F32Operand, F43, F43>(winograd_backward_operands<T>(dx, dy, w, p)).run(dx.device);
  });
}

RT_ISA_END
