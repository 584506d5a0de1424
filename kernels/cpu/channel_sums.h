#pragma once
#include "kernels/cpu/channels.h"
#include "kernels/cpu/mask.h"

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

// A vector of dz at element `at` of a row; a null mask keeps all elements.
template <class T>
RT_INLINE auto masked(const T* dy, const uint8_t* mask, int64_t at, int64_t left) {
  using C = compute_t<T>;
  const Vec<C> v = load_converted(dy + at, left);
  return mask ? where_bits<C>(bits_at<C>(mask, at), v) : v;
}

// Adds `rows` rows of dz to db, and those of dz (x - mean) to dot.
template <int rows, class T, class C>
void add_products(C* db, C* dot, const T* dy, const uint8_t* mask, const T* x, const C* mean, int64_t n) {
  for (int64_t i = 0; i < n; i += kLanes<C>) {
    const Vec<C> center = load(mean + i);
    Vec<C> sum{}, products{};
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const Vec<C> v = masked(dy, mask, r * n + i, kLanes<C>);
      sum += v;
      products += v * (load_converted(x + r * n + i, kLanes<C>) - center);
    }
    store(db + i, load(db + i) + sum);
    store(dot + i, load(dot + i) + products);
  }
}

template <class T, class C>
void chunk_products(C* db, C* dot, const T* dy, const uint8_t* mask, const T* x, const C* mean, int64_t n,
                    int64_t rows) {
  const auto from = [mask](int64_t at) { return mask ? mask + at / 8 : nullptr; };
  int64_t r = 0;
  for (; r + kTile <= rows; r += kTile) add_products<kTile>(db, dot, dy + r * n, from(r * n), x + r * n, mean, n);
  for (; r < rows; ++r) add_products<1>(db, dot, dy + r * n, from(r * n), x + r * n, mean, n);
}

}  // namespace

RT_ISA_END
