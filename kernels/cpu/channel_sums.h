#pragma once
#include <cstring>

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

// Adds `rows` rows to mean and squares (the sum of squared distances from the mean) of `before` rows. Merging follows
// Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances" (1979), in
// double. So f32 rounding happens only within tiles, which are the same for any distribution of a batch over ranks, if
// each image has a whole number of tiles.
template <int rows, class T>
void add_moments(double* mean, double* squares, const T* x, int64_t n, int64_t before) {
  using C = compute_t<T>;
  const double share = double(rows) / double(before + rows), weight = double(before) * share;
  for (int64_t i = 0; i < n; i += kLanes<C>) {
    Vec<C> v[rows];
    for (int r = 0; r < rows; ++r) v[r] = load_converted(x + r * n + i, kLanes<C>);
    const Vec<C> center = tree_sum<rows>(v) * (C(1) / rows);
    for (int r = 0; r < rows; ++r) v[r] = (v[r] - center) * (v[r] - center);
    const Vec<C> own = tree_sum<rows>(v);
  RT_IVDEP
    for (int64_t l = 0; l < kLanes<C>; ++l) {
      const double distance = double(center[l]) - mean[i + l];
      mean[i + l] += distance * share;
      squares[i + l] += double(own[l]) + distance * distance * weight;
    }
  }
}

template <class T>
void chunk_moments(double* mean, double* squares, const T* x, int64_t n, int64_t rows) {
  int64_t r = 0;
  for (; r + kTile <= rows; r += kTile) add_moments<kTile>(mean, squares, x + r * n, n, r);
  for (; r < rows; ++r) add_moments<1>(mean, squares, x + r * n, n, r);
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

// Merges the results of the chunks, (chunks, 2, n), for each column into totals (2, n).
inline void combine_chunks(double* mean, double* squares, const double* part, const Rows& rows) {
  double before = 0;
  for (int64_t c = 0; c < rows.chunks; ++c, part += 2 * rows.n) {
    const double own = double(rows.chunk_end(c) - rows.chunk_begin(c)), share = own / (before + own),
                 weight = before * share;
    RT_IVDEP
    for (int64_t i = 0; i < rows.n; ++i) {
      const double distance = part[i] - mean[i];
      mean[i] += distance * share;
      squares[i] += part[rows.n + i] + distance * distance * weight;
    }
    before += own;
  }
}

// One row of n elements. residual and mask may be null.
template <class T, class C>
void normalize_row(T* y, uint8_t* mask, const T* x, const T* residual, const C* mean, const C* scale, const C* b,
                   bool relu, int64_t n) {
  for (int64_t i = 0; i < n; i += kPack) {
    unsigned above = 0;
#pragma GCC unroll 8
    for (int64_t l = 0; l < kPack; l += kLanes<C>) {
      const int64_t at = i + l, left = n - at;
      if (left <= 0) break;
      Vec<C> v = (load_converted(x + at, left) - load(mean + at)) * load(scale + at) + load(b + at);
      if (residual) v += load_converted(residual + at, left);
      if (relu) {
        above |= bits_above_zero<C>(v) << l;
        v = v < 0 ? Vec<C>{} : v;
      }
      store_converted(y + at, v, left);
    }
    if (!mask) continue;
    const auto bits = uint16_t(n - i < kPack ? above & ((1u << (n - i)) - 1) : above);
    std::memcpy(mask + i / 8, &bits, sizeof bits);
  }
}

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
