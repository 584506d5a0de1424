#pragma once
#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/cpu/vector/vector.h"

RT_ISA_BEGIN

namespace {

// A tile of dot products: both operands are contiguous along k, vectors run along k, and nothing is packed. Each loaded
// vector is used in several products; at the end the lanes are summed.
inline constexpr int kDotRows = RT_ISA_LEVEL >= RT_ISA_avx512 ? 3 : 2;
inline constexpr int kDotCols = RT_ISA_LEVEL >= RT_ISA_avx512 ? 8 : 4;

// c(r, j) = add(r, j) plus the product of row r of a and row j of b. A null add stands for zeros; it may be c itself.
template <class T> struct DotArgs {
  int64_t k;
  const T* a;
  int64_t a_stride;
  const T* b;
  int64_t b_stride;
  const T* add;
  int64_t add_stride;
  T* c;
  int64_t c_stride;
};

template <class T, int rows, int cols>
RT_INLINE void dot_step(Vec<T> (&sum)[rows][kDotCols], const T* const* a, const T* const* b, int64_t p, int64_t count) {
  Vec<T> av[rows];
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r) av[r] = count < 0 ? load(a[r] + p) : load_partial(a[r] + p, count);
#pragma GCC unroll 8
  for (int j = 0; j < cols; ++j) {
    Vec<T> bv = count < 0 ? load(b[j] + p) : load_partial(b[j] + p, count);
    in_register(bv);
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) sum[r][j] += av[r] * bv;
  }
}

// Sums the lanes of the columns from `first` on, of a row with `cols` columns, and stores the sums plus add.
template <class T, int cols, int first = 0> RT_INLINE void finish_row(Vec<T>* sum, const T* add, T* c) {
  constexpr int group = std::min(kDotCols, kLanes<T>), count = std::min(group, cols - first);
  auto s = lane_sums<T, group>(sum + first);
  if (add) {
    decltype(s) before{};
    std::memcpy(&before, add + first, count * sizeof(T));
    s += before;
  }
  std::memcpy(c + first, &s, count * sizeof(T));
  if constexpr (first + group < cols) finish_row<T, cols, first + group>(sum, add, c);
}

template <class T, int rows, int cols> void dot_tile(const DotArgs<T>& t) {
  constexpr int lanes = kLanes<T>;
  const T *a[rows], *b[cols];
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r) in_register(a[r] = r ? a[r - 1] + t.a_stride : t.a);
#pragma GCC unroll 8
  for (int j = 0; j < cols; ++j) in_register(b[j] = j ? b[j - 1] + t.b_stride : t.b);
  Vec<T> sum[rows][kDotCols] = {};
  int64_t p = 0;
  for (; p + lanes <= t.k; p += lanes) dot_step<T, rows, cols>(sum, a, b, p, -1);
  if (p < t.k) dot_step<T, rows, cols>(sum, a, b, p, t.k - p);
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r)
    finish_row<T, cols>(sum[r], t.add ? t.add + r * t.add_stride : nullptr, t.c + r * t.c_stride);
}

template <class T> using DotFn = void (*)(const DotArgs<T>&);

// kDots<T>[(rows - 1) * kDotCols + cols - 1]
template <class T, size_t... i> constexpr std::array<DotFn<T>, sizeof...(i)> make_dots(std::index_sequence<i...>) {
  return {dot_tile<T, int(i) / kDotCols + 1, int(i) % kDotCols + 1>...};
}
template <class T> inline constexpr auto kDots = make_dots<T>(std::make_index_sequence<kDotRows * kDotCols>());

}  // namespace

RT_ISA_END
