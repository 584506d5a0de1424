#include "kernels/cumsum.h"

#include <algorithm>
#include <utility>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/vector/scratch.h"

RT_ISA_BEGIN

namespace {

// A long row is divided into parts of this many elements: their sums first, then each part by itself.
constexpr int64_t kCumsumPart = 1 << 14;
constexpr int kCumsumLines = 4;  // rows or parts at a time: each waits for its own sum only

template <class A, class T> RT_INLINE A running(T x) { return static_cast<A>(static_cast<compute_t<T>>(x)); }
template <class Y, class A> RT_INLINE Y stored(A sum) { return static_cast<Y>(static_cast<compute_t<Y>>(sum)); }

// n elements, `step` apart, from x on; the sums continue from sum.
template <int lines, class T, class Y, class A>
void scan_lines(const T* const* x, Y* const* y, const A* before, int64_t n, int64_t step) {
  A sum[lines];
  std::copy_n(before, lines, sum);
  for (int64_t i = 0; i < n; ++i)
    for (int l = 0; l < lines; ++l) {
      sum[l] += running<A>(x[l][i * step]);
      y[l][i * step] = stored<Y>(sum[l]);
    }
}

template <class T, class A> A sum_of(const T* x, int64_t n) {
  constexpr int lanes = 8;
  A sum[lanes] = {};
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    for (int j = 0; j < lanes; ++j) sum[j] += running<A>(x[i + j]);
  for (int j = 0; i + j < n; ++j) sum[j] += running<A>(x[i + j]);
  for (int half = lanes / 2; half > 0; half /= 2)
    for (int j = 0; j < half; ++j) sum[j] += sum[j + half];
  return sum[0];
}

// Each number becomes the sum of those before it in its row (rows, parts).
template <class A> void sums_before(A* x, int64_t rows, int64_t parts) {
  for (int64_t r = 0; r < rows; ++r) {
    A sum = 0;
    for (A* b = x + r * parts; b < x + (r + 1) * parts; ++b) sum += std::exchange(*b, sum);
  }
}

// Rows (O, N). Parts are numbered in the direction of the sums.
template <class T, class Y, class A> void cumsum_rows(const View& y, const View& x, bool reverse) {
  const int64_t rows = x.dims[0], n = x.dims[1], part = n > 2 * kCumsumPart ? kCumsumPart : n,
                parts = ceil_div(n, part), step = reverse ? -1 : 1;
  const auto size_of_line = [&](int64_t line) { return std::min(part, n - line % parts * part); };
  const auto first_of_line = [&](int64_t line) {
    const int64_t i = line % parts * part;
    return line / parts * n + (reverse ? n - 1 - i : i);
  };
  const Scratch<A> before(rows * parts, y.device);
  std::fill_n(before.data(), rows * parts, A(0));
  if (parts > 1) {
    parallel_for(rows * parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t line = begin; line < end; ++line) {
        const int64_t size = size_of_line(line), first = first_of_line(line);
        before.data()[line] = sum_of<T, A>(x.as<T>() + (reverse ? first - size + 1 : first), size);
      }
    });
    sums_before(before.data(), rows, parts);
  }
  parallel_for(rows * parts, std::max<int64_t>(1, kGrain / 8 / part), [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end;) {
      const int64_t size = size_of_line(line);
      int64_t count = 0;  // lines of the same size from here on
      const T* from[kCumsumLines];
      Y* to[kCumsumLines];
      for (; count < kCumsumLines && line + count < end && size_of_line(line + count) == size; ++count) {
        from[count] = x.as<T>() + first_of_line(line + count);
        to[count] = y.as<Y>() + first_of_line(line + count);
      }
      if (count == kCumsumLines) scan_lines<kCumsumLines>(from, to, before.data() + line, size, step);
      else
        for (int64_t l = 0; l < count; ++l) scan_lines<1>(from + l, to + l, before.data() + line + l, size, step);
      line += count;
    }
  });
}

// (O, N, R), R > 1: strips of columns.
template <class T, class Y, class A> void cumsum_columns(const View& y, const View& x, bool reverse) {
  constexpr int64_t most = 1024;
  const int64_t outer = x.dims[0], n = x.dims[1], row = x.dims[2];
  const int64_t width = std::clamp<int64_t>(ceil_div(row * outer, threads()), 64, most), strips = ceil_div(row, width);
  const int64_t grain = std::max<int64_t>(1, kGrain / 4 / (n * std::min(row, width)));
  parallel_for(outer * strips, grain, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) {
      const int64_t o = s / strips, first = s % strips * width, columns = std::min(width, row - first);
      A sum[most] = {};
      for (int64_t i = 0; i < n; ++i) {
        const int64_t at = (o * n + (reverse ? n - 1 - i : i)) * row + first;
        const T* const from = x.as<T>() + at;
        Y* const to = y.as<Y>() + at;
        RT_IVDEP
        for (int64_t j = 0; j < columns; ++j) {
          sum[j] += running<A>(from[j]);
          to[j] = stored<Y>(sum[j]);
        }
      }
    }
  });
}

}  // namespace

void cumsum_forward(View y, View x, bool reverse) {
  if (x.size() == 0) return;
  dispatch(x.dtype, [&]<class T>() {
    using A = running_t<T>;
    using Y = std::conditional_t<std::is_same_v<A, uint64_t>, int64_t, T>;
    if (x.dims[2] == 1) cumsum_rows<T, Y, A>(y, x, reverse);
    else cumsum_columns<T, Y, A>(y, x, reverse);
  });
}

RT_ISA_END
