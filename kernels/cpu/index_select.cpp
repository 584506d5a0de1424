#include "kernels/index_select.h"

#include <cstring>
#include <vector>

#include "kernels/cpu/elementwise.h"

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

void index_select_backward(View dx, View dy, View index) {
  const int64_t outer = dx.dims[0], n = dx.dims[1], row = dx.dims[2], count = dy.dims[1];
  const int64_t* at = index.as<int64_t>();
  dispatch_float(dx.dtype, [&]<class T>() {
    using C = compute_t<T>;
    // A thread owns a range of columns, so that sums into one place happen in one order.
    const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, outer * count));
    parallel_for(row, grain, [&](int64_t begin, int64_t end) {
      std::vector<C> sum(size_t(n * (end - begin)));
      for (int64_t o = 0; o < outer; ++o) {
        std::fill(sum.begin(), sum.end(), C(0));
        for (int64_t i = 0; i < count; ++i) {
          const T* g = dy.as<T>() + (o * count + i) * row + begin;
          C* to = sum.data() + at[i] * (end - begin);
          for (int64_t r = 0; r < end - begin; ++r) to[r] += C(g[r]);
        }
        for (int64_t j = 0; j < n; ++j)
          for (int64_t r = 0; r < end - begin; ++r)
            dx.as<T>()[(o * n + j) * row + begin + r] = T(sum[size_t(j * (end - begin) + r)]);
      }
    });
  });
}

RT_ISA_END
