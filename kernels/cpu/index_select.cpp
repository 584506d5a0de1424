#include "kernels/index_select.h"

#include <cstring>
#include <vector>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/vector/range.h"

RT_ISA_BEGIN

void index_select_forward(View y, View x, View index) {
  const int64_t count = y.dims[1], n = x.dims[1], row = y.dims[2] * int64_t(size_of(y.dtype));
  const int64_t* at = index.as<int64_t>();
  for (int64_t i = 0; i < count; ++i)
    RT_CHECK_AS(UsageError, at[i] >= 0 && at[i] < n, "index_select: index ", at[i], " into an axis of size ", n);
  if (row == 0) return;
  parallel_for(y.dims[0] * count, std::max<int64_t>(1, kGrain / row), [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k)
      std::memcpy(y.as<char>() + k * row, x.as<char>() + (k / count * n + at[k % count]) * row, size_t(row));
  });
}

namespace {

constexpr int64_t kSelectSums = 1 << 16;  // of 16-bit gradients, which a thread holds in f32 at a time

// dx[outer, places, columns]: adds the rows of dy in the order of the index. So a sum is the same for any division.
template <class T>
void sum_rows(const View& dx, const View& dy, const int64_t* at, Range outer, Range places, Range columns) {
  using C = compute_t<T>;
  constexpr bool in_place = std::is_same_v<T, C>;
  const int64_t n = dx.dims[1], row = dx.dims[2], count = dy.dims[1], width = columns.size(), size = places.size();
  if (width == 0 || size == 0) return;
  const int64_t step = in_place ? row : width;
  std::vector<C> sums(in_place ? 0 : size_t(size * width));
  for (int64_t o = outer.begin; o < outer.end; ++o) {
    T* const to = dx.as<T>() + (o * n + places.begin) * row + columns.begin;
    C* sum = sums.data();
    if constexpr (in_place) sum = to;
    for (int64_t p = 0; p < size; ++p) std::fill_n(sum + p * step, width, C(0));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t p = at[i] - places.begin;
      if (p < 0 || p >= size) continue;
      const T* const g = dy.as<T>() + (o * count + i) * row + columns.begin;
      C* const own = sum + p * step;
      for (int64_t r = 0; r < width; ++r) own[r] += C(g[r]);
    }
    if constexpr (!in_place)
      for (int64_t p = 0; p < size; ++p)
        for (int64_t r = 0; r < width; ++r) to[p * row + r] = T(sum[p * width + r]);
  }
}

}  // namespace

// Divides what there is enough of among the threads: the outer axis, the places, or the columns.
void index_select_backward(View dx, View dy, View index) {
  const int64_t outer = dx.dims[0], n = dx.dims[1], row = dx.dims[2], count = dy.dims[1];
  const int64_t* const at = index.as<int64_t>();
  if (dx.size() == 0) return;
  const bool by_outer = outer >= threads(), by_place = !by_outer && n >= 4 * threads();
  const int64_t parts = by_outer ? outer : by_place ? n : row;
  const int64_t grain = std::max<int64_t>(1, kGrain / (outer * (n + count) * row / parts + 1));
  dispatch_float(dx.dtype, [&]<class T>() {
    parallel_for(parts, grain, [&](int64_t begin, int64_t end) {
      const Range own{begin, end}, outers = by_outer ? own : Range{0, outer}, places = by_place ? own : Range{0, n},
                                   columns = by_outer || by_place ? Range{0, row} : own;
      const int64_t some = std::is_same_v<T, compute_t<T>> ? places.size() : kSelectSums / columns.size() + 1;
      for (int64_t p = places.begin; p < places.end; p += some)
        sum_rows<T>(dx, dy, at, outers, {p, std::min(p + some, places.end)}, columns);
    });
  });
}

RT_ISA_END
