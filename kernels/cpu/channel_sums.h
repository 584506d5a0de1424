#pragma once
#include "kernels/cpu/channels.h"

// Passes over rows of channels, for batch_norm and group_norm.
RT_ISA_BEGIN

namespace {

// Pairwise sums: the mean of equal numbers is exact.
template <int rows, class V>
RT_INLINE V tree_sum(const V* v) {
  if constexpr (rows == 1) return v[0];
  else return tree_sum<rows / 2>(v) + tree_sum<rows / 2>(v + rows / 2);
}

// Count, mean and squares of a channel, in double.
struct Moments {
  double count = 0, mean = 0, squares = 0;
  void add(double n, double m, double s) {
    const double share = n / (count + n), distance = m - mean;
    mean += distance * share;
    squares += s + distance * distance * count * share;
    count += n;
  }
  double variance() const { return count > 0 ? squares / count : 0; }
};

// A vector of dz at element `at` of a row, also stored at `copy` unless that is null; a null mask keeps all elements.
template <class T>
RT_INLINE Wide<T> masked(const T* dy, const uint8_t* mask, int64_t at, int64_t left, T* copy = nullptr) {
  return load_wide_where(mask ? wide_bits_at<T>(mask, at, left) : ~0u, dy + at, left, copy);
}

// Into the cache, as far into the tile after this one of `rows` rows as element i is into a row. Columns of a tile are
// not what a processor prefetches by itself.
template <int rows, class T>
RT_INLINE void prefetch_next_tile(const T* x, int64_t n, int64_t i) {
  constexpr int64_t line = 64 / int64_t(sizeof(T));
#pragma GCC unroll 16
  for (int64_t r = 0; r < rows * kWide<T>; r += line) __builtin_prefetch(x + rows * (n + i) + r);
}

// Adds `rows` rows of dz to db, and those of dz (x - mean) to dot; all numbers are in the order of lanes.
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

template <class T>
void chunk_products(compute_t<T>* db, compute_t<T>* dot, const T* dy, const uint8_t* mask, const T* x,
                    const compute_t<T>* mean, int64_t n, int64_t rows) {
  const auto from = [mask](int64_t at) { return mask ? mask + at / 8 : nullptr; };
  int64_t r = 0;
  for (; r + kTile <= rows; r += kTile) add_products<kTile>(db, dot, dy + r * n, from(r * n), x + r * n, mean, n);
  for (; r < rows; ++r) add_products<1>(db, dot, dy + r * n, from(r * n), x + r * n, mean, n);
}

}  // namespace

RT_ISA_END
