#pragma once
#include <limits>
#include <tuple>
#include <vector>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/vector.h"

// Kernels that work row by row on contiguous (N, C) operands of one dtype.
RT_ISA_BEGIN

// A row of an operand in the compute type: in place, or converted into a buffer and, for an output, back.
template <class T>
struct Row {
  using C = compute_t<T>;
  static const C* read(const T* x, int64_t n, C* buffer) {
    if constexpr (std::is_same_v<T, C>) return x;
    for (int64_t i = 0; i < n; ++i) buffer[i] = C(x[i]);
    return buffer;
  }
  static C* open(T* y, C* buffer) {
    if constexpr (std::is_same_v<T, C>) return y;
    else return buffer;
  }
  static void close(T* y, int64_t n, const C* buffer) {
    if constexpr (!std::is_same_v<T, C>)
      for (int64_t i = 0; i < n; ++i) y[i] = T(buffer[i]);
  }
};

// Calls f(y row, x rows ..., C, row number) for each row of (N, C) operands, rows in the compute type.
template <class F, class... Inputs>
void for_each_row(const View& y, const F& f, const Inputs&... inputs) {
  const int64_t columns = y.dims[y.rank - 1], rows = columns ? y.size() / columns : 0;
  dispatch_float(y.dtype, [&]<class T>() {
    using C = compute_t<T>;
    constexpr size_t n_buffers = std::is_same_v<T, C> ? 0 : sizeof...(inputs) + 1;
    const int64_t grain = std::max<int64_t>(1, kGrain / 8 / std::max<int64_t>(columns, 1));
    parallel_for(rows, grain, [&](int64_t begin, int64_t end) {
      std::vector<C> buffers(n_buffers * size_t(columns));
      for (int64_t r = begin; r < end; ++r) {
        C* buffer = buffers.data();
        T* out = y.as<T>() + r * columns;
        C* row = Row<T>::open(out, buffer);
        const auto next = [&](const View& x) {
          return Row<T>::read(x.as<T>() + r * columns, columns, buffer += n_buffers ? columns : 0);
        };
        std::apply([&](auto... x) { f(row, x..., columns, r); }, std::tuple{next(inputs)...});
        Row<T>::close(out, columns, row);
      }
    });
  });
}

// Sums and maxima of a row with independent partial results, which vectorise. map(i) returns element i.
template <class C, class M>
RT_INLINE C row_sum(int64_t n, const M& map) {
  constexpr int lanes = 16;
  C acc[lanes] = {};
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    for (int j = 0; j < lanes; ++j) acc[j] += map(i + j);
  for (int j = 0; i + j < n; ++j) acc[j] += map(i + j);
  for (int half = lanes / 2; half > 0; half /= 2)
    for (int j = 0; j < half; ++j) acc[j] += acc[j + half];
  return acc[0];
}

template <class C>
RT_INLINE C row_max(const C* x, int64_t n) {
  constexpr int64_t lanes = kLanes<C>;
  Vec<C> acc = Vec<C>{} - std::numeric_limits<C>::infinity();
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) acc = max_or_nan(acc, load(x + i));
  C top = acc[0];
  for (int64_t j = 1; j < lanes; ++j) top = max_or_nan(top, C(acc[j]));
  for (; i < n; ++i) top = max_or_nan(top, x[i]);
  return top;
}

RT_ISA_END
