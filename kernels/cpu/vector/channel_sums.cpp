#include "kernels/cpu/vector/channel_sums.h"

#include "kernels/cpu/vector/isa.h"

RT_ISA_BEGIN

namespace {

template <int rows, class T>
void add_products(compute_t<T>* db, compute_t<T>* dot, const T* dy, const uint8_t* mask, const T* x,
                  const compute_t<T>* mean, int64_t n) {
  const bool ahead = rows > 1 && (sizeof(T) == 2 || n <= 64);  // tiles of two tensors that the cache has room for
  for_each_step<kWide<T>>(n, [&](int64_t i, auto left) RT_INLINE_LAMBDA {
    if (ahead) prefetch_next_tile<rows>(dy, n, i), prefetch_next_tile<rows>(x, n, i);
    const Wide<T> center = load_in_order<T>(mean + i);
    Wide<T> sum{}, products{};
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const Wide<T> v = masked(dy, mask, r * n + i, left);
      sum = sum + v;
      products = products + v * (load_wide(x + r * n + i, left) - center);
    }
    store_in_order<T>(db + i, load_in_order<T>(db + i) + sum);
    store_in_order<T>(dot + i, load_in_order<T>(dot + i) + products);
  });
}

}  // namespace

template <class T>
void chunk_products(compute_t<T>* db, compute_t<T>* dot, const T* dy, const uint8_t* mask, const T* x,
                    const compute_t<T>* mean, int64_t n, int64_t rows) {
  const auto from = [mask](int64_t at) { return mask ? mask + at / 8 : nullptr; };
  int64_t r = 0;
  for (; r + kTile <= rows; r += kTile) add_products<kTile>(db, dot, dy + r * n, from(r * n), x + r * n, mean, n);
  for (; r < rows; ++r) add_products<1>(db, dot, dy + r * n, from(r * n), x + r * n, mean, n);
}

#define RT_CHUNK_PRODUCTS(T)                                                                                          \
  template void chunk_products(compute_t<T>*, compute_t<T>*, const T*, const uint8_t*, const T*, const compute_t<T>*, \
                               int64_t, int64_t);
RT_CHUNK_PRODUCTS(float)
RT_CHUNK_PRODUCTS(double)
RT_CHUNK_PRODUCTS(f16)
RT_CHUNK_PRODUCTS(bf16)

RT_ISA_END
