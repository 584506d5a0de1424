#pragma once
#include <array>
#include <limits>
#include <utility>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/vector/vector.h"

// Kernels that work row by row on contiguous (N, C) operands of one dtype.
RT_ISA_BEGIN

// A row of an operand in the compute type: in place, or converted into a buffer and, for an output, back.
template <class T> struct Row {
  using C = compute_t<T>;
  static const C* read(const T* x, int64_t n, C* buffer) {
    if constexpr (std::is_same_v<T, C>) return x;
    if constexpr (std::is_same_v<T, bf16>)  // inlined, with what uses the row
      for (int64_t i = 0; i < n; ++i) buffer[i] = C(x[i]);
    else widen(x, n, buffer);
    return buffer;
  }
  static C* open(T* y, C* buffer) {
    if constexpr (std::is_same_v<T, C>) return y;
    else return buffer;
  }
  static void close(T* y, int64_t n, const C* buffer) {
    if constexpr (!std::is_same_v<T, C>) narrow(buffer, n, y);
  }
};

// f of one row: n elements of y and of each x.
template <class C> using RowFunction = void (*)(const void* f, C* y, const C* const* x, int64_t n, int64_t row);

// Converts, and calls `function` with f for each row. What does not depend on f is compiled once, in rows.cpp.
template <class C> void map_rows(RowFunction<C> function, const void* f, const View& y, const View* x, size_t inputs);

template <class C, class F, size_t... I> RowFunction<C> row_function_of(std::index_sequence<I...>) {
  return [](const void* f, C* y, const C* const* x, int64_t n, int64_t row) {
    (*static_cast<const F*>(f))(y, x[I]..., n, row);
  };
}

// Calls f(y row, x rows ..., C, row number) for each row of (N, C) operands, rows in the compute type. y may have no
// data; then there is no row of it.
template <class F, class... Inputs> void for_each_row(const View& y, const F& f, const Inputs&... inputs) {
  const std::array<View, sizeof...(inputs)> x{inputs...};
  constexpr std::index_sequence_for<Inputs...> each;
  dispatch_compute(x[0].dtype, [&]<class C>() { map_rows(row_function_of<C, F>(each), &f, y, x.data(), x.size()); });
}

// Sums and maxima of a row with independent partial results, which vectorise. map(i) returns element i.
template <class C, class M> RT_INLINE C row_sum(int64_t n, const M& map) {
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

template <class C> RT_INLINE C row_max(const C* x, int64_t n) {
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
