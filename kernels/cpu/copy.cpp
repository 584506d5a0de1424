#include "kernels/copy.h"

#include <functional>
#include <numeric>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/vector/vector.h"

RT_ISA_BEGIN

namespace {

// A matrix that is contiguous along rows in y but along columns in x is copied in tiles, through a buffer or registers:
// each cache line is read and written once and completely. (Lines a power of two apart would evict each other.)
constexpr int64_t kTransposeTile = 32,
                  kTransposeTiles = 8;  // elements per side; tiles that are copied in sequence along x's memory

template <class T>
void transpose_tile(T* to, int64_t to_step, const T* from, int64_t from_step, int64_t rows, int64_t columns) {
  T tile[kTransposeTile][kTransposeTile];
  for (int64_t j = 0; j < columns; ++j)
    for (int64_t i = 0; i < rows; ++i) tile[i][j] = from[i + j * from_step];
  for (int64_t i = 0; i < rows; ++i) std::copy_n(tile[i], columns, to + i * to_step);
}

// Whole tiles, one below the other. F is float or double and stands for any type of its size: bits are only moved. Goes
// along columns first, which is x's memory order.
template <class F> void transpose_whole_tiles(F* to, int64_t to_step, const F* from, int64_t from_step, int64_t rows) {
  constexpr int64_t lanes = kLanes<F>;
  for (int64_t j = 0; j < kTransposeTile; j += lanes)
    for (int64_t i = 0; i < rows; i += lanes) {
      Vec<F> square[lanes];
      for (int64_t l = 0; l < lanes; ++l) square[l] = load(from + i + (j + l) * from_step);
      transpose<F>(square);
      for (int64_t l = 0; l < lanes; ++l) store(to + (i + l) * to_step + j, square[l]);
    }
}

// For few columns: interleaves their elements, like channels of an image. The number is constant, so that the loop
// vectorises.
template <int columns, class T> void interleave(T* to, const T* from, int64_t step, int64_t rows) {
  RT_IVDEP
  for (int64_t i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j) to[i * columns + j] = from[i + j * step];
}

template <class T> void transpose_rows(T* to, const T* from, int64_t step, int64_t rows, int64_t columns) {
  using F = std::conditional_t<sizeof(T) == 8, double, float>;
  if (columns == 2) return interleave<2>(to, from, step, rows);
  if (columns == 3) return interleave<3>(to, from, step, rows);
  if (columns == 4) return interleave<4>(to, from, step, rows);
  const int64_t whole = sizeof(T) == sizeof(F) ? rows / kTransposeTile * kTransposeTile : 0;
  for (int64_t j = 0; j < columns; j += kTransposeTile) {
    const int64_t across = std::min(kTransposeTile, columns - j);
    int64_t i = 0;
    if (across == kTransposeTile && whole > 0) {
      transpose_whole_tiles(reinterpret_cast<F*>(to + j), columns, reinterpret_cast<const F*>(from + j * step), step,
                            whole);
      i = whole;
    }
    for (; i < rows; i += kTransposeTile)
      transpose_tile(to + i * columns + j, columns, from + i + j * step, step, std::min(kTransposeTile, rows - i),
                     across);
  }
}

// Treats the last two axes of dense y as such matrices: one for each index of the other axes.
template <class T> bool transpose_all(const Operand& y, const Operand& x) {
  const int last = y.rank - 1;
  if (last < 1 || !y.dense || x.strides[last - 1] != 1 || x.strides[last] < y.dims[last - 1] || y.dims[last - 1] < 8)
    return false;
  const int64_t rows = y.dims[last - 1], columns = y.dims[last], size = rows * columns;
  const int64_t band = kTransposeTile * kTransposeTiles, bands = (rows + band - 1) / band;
  Operand matrices = x;  // their first elements
  matrices.rank = std::max(last - 1, 1);
  if (last == 1) matrices.dims[0] = 1;
  const int64_t count = last == 1 ? 1 : std::accumulate(y.dims, y.dims + last - 1, int64_t{1}, std::multiplies<>());
  parallel_for(count * bands, std::max<int64_t>(1, kGrain / (band * columns)), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t matrix = t / bands, row = t % bands * band;
      matrices.for_each_run(matrix, 1, [&](int64_t offset, int64_t, int64_t, int64_t) {
        transpose_rows(reinterpret_cast<T*>(y.data) + matrix * size + row * columns,
                       reinterpret_cast<const T*>(x.data) + offset + row, x.strides[last], std::min(band, rows - row),
                       columns);
      });
    }
  });
  return true;
}

// Same dtype: no conversion, so integers are not rounded by floating point. T stands for any type of its size, too.
template <class T> void copy_same(const Operand& y, const Operand& x, int64_t n) {
  if (transpose_all<T>(y, x)) return;
  parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
    T buffer[kBlock];
    const T* from = reinterpret_cast<const T*>(x.data);
    T* to = reinterpret_cast<T*>(y.data);
    const auto gather = [&](T* out, int64_t at, int64_t count) {
      x.for_each_run(at, count, [&](int64_t offset, int64_t step, int64_t run, int64_t place) {
        if (step == 1) std::copy_n(from + offset, run, out + place);
        else
          for (int64_t i = 0; i < run; ++i) out[place + i] = from[offset + i * step];
      });
    };
    if (y.dense) return gather(to + begin, begin, end - begin);
    for (int64_t at = begin; at < end; at += kBlock) {
      const int64_t count = std::min(kBlock, end - at);
      gather(buffer, at, count);
      y.for_each_run(at, count, [&](int64_t offset, int64_t step, int64_t run, int64_t place) {
        for (int64_t i = 0; i < run; ++i) to[offset + i * step] = buffer[place + i];
      });
    }
  });
}

// Dense y and x, one of which is f32 and the other one bf16.
template <class Y, class X> void convert(const View& y, const View& x) {
  constexpr int64_t lanes = kLanes<float>;
  parallel_for(y.size(), kGrain, [&](int64_t begin, int64_t end) {
    Y* const to = y.as<Y>();
    const X* const from = x.as<X>();
    int64_t i = begin;
    for (; i + lanes <= end; i += lanes) store_whole(to + i, load_whole(from + i));
    for (; i < end; ++i) to[i] = Y(float(from[i]));
  });
}

}  // namespace

void copy(View y, View x) {
  if (y.size() == 0) return;
  if (y.contiguous() && x.contiguous()) {
    if (y.dtype == DType::bf16 && x.dtype == DType::f32) return convert<bf16, float>(y, x);
    if (y.dtype == DType::f32 && x.dtype == DType::bf16) return convert<float, bf16>(y, x);
  }
  if (y.dtype == x.dtype) {
    const auto operands = operands_of(std::array<View, 2>{y, x});
    const auto same = [&]<class T>() { copy_same<T>(operands[0], operands[1], y.size()); };
    switch (size_of(y.dtype)) {
      case 1: return same.template operator()<uint8_t>();
      case 2: return same.template operator()<bf16>();
      case 4: return same.template operator()<float>();
      default: return same.template operator()<double>();
    }
  } else if (!is_float(y.dtype) && !is_float(x.dtype)) {
    map_as<int64_t>([](int64_t v) { return v; }, y, x);
  } else if (y.dtype == DType::f64 || x.dtype == DType::f64 || x.dtype == DType::i64 || x.dtype == DType::i32) {
    map_as<double>([](double v) { return v; }, y, x);
  } else {
    map_as<float>([](float v) { return v; }, y, x);
  }
}

RT_ISA_END
