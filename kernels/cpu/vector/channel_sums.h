#pragma once
#include "kernels/cpu/vector/channels.h"

// Passes over rows of channels, for batch_norm and group_norm.
RT_ISA_BEGIN

namespace {

// Pairwise sums: the mean of equal numbers is exact.
template <int rows, class V> RT_INLINE V tree_sum(const V* v) {
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
template <int rows, class T> RT_INLINE void prefetch_next_tile(const T* x, int64_t n, int64_t i) {
  constexpr int64_t line = 64 / int64_t(sizeof(T));
#pragma GCC unroll 16
  for (int64_t r = 0; r < rows * kWide<T>; r += line) __builtin_prefetch(x + rows * (n + i) + r);
}

}  // namespace

// Adds `rows` rows of dz to db, and those of dz (x - mean) to dot; all numbers are in the order of lanes.
template <class T>
void chunk_products(compute_t<T>* db, compute_t<T>* dot, const T* dy, const uint8_t* mask, const T* x,
                    const compute_t<T>* mean, int64_t n, int64_t rows);

RT_ISA_END
