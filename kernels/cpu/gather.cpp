#include "kernels/gather.h"

#include <algorithm>

#include "kernels/cpu/elementwise.h"

RT_ISA_BEGIN

namespace {

inline int64_t checked(int64_t index, int64_t n, const char* op) {
  RT_CHECK_AS(UsageError, index >= 0 && index < n, op, ": index ", index, " into an axis of size ", n);
  return index;
}

}  // namespace

void gather_forward(View y, View x, View index) {
  const int64_t count = y.dims[1], row = y.dims[2], n = x.dims[1];
  dispatch(y.dtype, [&]<class T>() {
    using U = bits_t<T>;
    parallel_for(y.dims[0] * count, std::max<int64_t>(1, kGrain / 2 / std::max<int64_t>(1, row)),
                 [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) {
        const U* const from = x.as<U>() + k / count * n * row;
        const int64_t* const at = index.as<int64_t>() + k * row;
        U* const to = y.as<U>() + k * row;
        for (int64_t r = 0; r < row; ++r) to[r] = from[checked(at[r], n, "gather") * row + r];
      }
    });
  });
}

// A thread owns columns (o, r), so that sums into one place happen in one order.
void scatter_add_forward(View y, View index, View src) {
  const int64_t n = y.dims[1], row = y.dims[2], count = src.dims[1];
  dispatch(y.dtype, [&]<class T>() {
    using C = std::conditional_t<std::is_integral_v<T>, bits_t<T>, compute_t<T>>;  // integers wrap around
    if constexpr (std::is_same_v<T, bool>) detail::fail<DTypeError>("scatter_add: no sums of b8; cast it");
    else
      parallel_for(y.dims[0] * row, std::max<int64_t>(1, kGrain / 4 / std::max<int64_t>(1, count)),
                   [&](int64_t begin, int64_t end) {
        for (int64_t column = begin; column < end;) {
          const int64_t o = column / row, first = column % row, width = std::min(row - first, end - column);
          T* const to = y.as<T>() + o * n * row + first;
          for (int64_t i = 0; i < count; ++i) {
            const int64_t from = (o * count + i) * row + first;
            const int64_t* const at = index.as<int64_t>() + from;
            const T* const g = src.as<T>() + from;
            for (int64_t r = 0; r < width; ++r) {
              T& sum = to[checked(at[r], n, "scatter_add") * row + r];
              sum = T(C(sum) + C(g[r]));
            }
          }
          column += width;
        }
      });
  });
}

RT_ISA_END
