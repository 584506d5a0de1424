#include "kernels/gather.h"

#include <algorithm>

#include "kernels/cpu/elementwise.h"

RT_ISA_BEGIN

namespace {

inline int64_t checked(int64_t index, int64_t n, const char* op) {
  RT_CHECK_AS(UsageError, index >= 0 && index < n, op, ": index ", index, " into an axis of size ", n);
  return index;
}

// Calls f(o, begin, end) for the parts of [begin, end) in which number / size, o, is the same.
template <class F> void for_each_line(int64_t begin, int64_t end, int64_t size, const F& f) {
  for (int64_t k = begin, next = 0; k < end; k = next) {
    const int64_t o = k / size;
    next = std::min(end, (o + 1) * size);
    f(o, k - o * size, next - o * size);
  }
}

}  // namespace

void gather_forward(View y, View x, View index) {
  const int64_t count = y.dims[1], row = y.dims[2], n = x.dims[1];
  if (y.size() == 0) return;
  dispatch(y.dtype, [&]<class T>() {
    using U = bits_t<T>;
    parallel_for(y.dims[0] * count, std::max<int64_t>(1, kGrain / 2 / row), [&](int64_t begin, int64_t end) {
      for_each_line(begin, end, count, [&](int64_t o, int64_t first, int64_t last) {
        const U* const from = x.as<U>() + o * n * row;
        const int64_t* const at = index.as<int64_t>() + o * count * row;
        U* const to = y.as<U>() + o * count * row;
        if (row == 1)
          for (int64_t i = first; i < last; ++i) to[i] = from[checked(at[i], n, "gather")];
        else
          for (int64_t i = first * row; i < last * row; i += row)
            for (int64_t r = 0; r < row; ++r) to[i + r] = from[checked(at[i + r], n, "gather") * row + r];
      });
    });
  });
}

// A thread owns columns (o, r), so that sums into one place happen in one order.
void scatter_add_forward(View y, View index, View src, bool) {
  const int64_t n = y.dims[1], row = y.dims[2], count = src.dims[1];
  dispatch(y.dtype, [&]<class T>() {
    if constexpr (std::is_same_v<T, bool>) {
      detail::fail<DTypeError>({"scatter_add: no sums of b8; cast it"});
    } else {
      using C = std::conditional_t<std::is_integral_v<T>, bits_t<T>, compute_t<T>>;  // integers wrap around
      const auto add = [](T& sum, T own) { sum = T(C(sum) + C(own)); };
      const auto columns = [&](int64_t o, int64_t first, int64_t last) {
        T* const to = y.as<T>() + o * n * row + first;
        const int64_t* const at = index.as<int64_t>() + o * count * row + first;
        const T* const own = src.as<T>() + o * count * row + first;
        if (row == 1)
          for (int64_t i = 0; i < count; ++i) add(to[checked(at[i], n, "scatter_add")], own[i]);
        else
          for (int64_t i = 0; i < count * row; i += row)
            for (int64_t r = i; r < i + last - first; ++r)
              add(to[checked(at[r], n, "scatter_add") * row + r - i], own[r]);
      };
      parallel_for(y.dims[0] * row, std::max<int64_t>(1, kGrain / 4 / std::max<int64_t>(1, count)),
                   [&](int64_t begin, int64_t end) { for_each_line(begin, end, row, columns); });
    }
  });
}

RT_ISA_END
