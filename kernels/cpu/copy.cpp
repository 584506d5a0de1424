#include "kernels/copy.h"

#include "kernels/cpu/elementwise.h"

RT_ISA_BEGIN

namespace {

// A matrix whose rows lie side by side in y but whose columns do in x is copied by tiles, through a buffer: each cache
// line is read, and written, whole and once. (Lines a power of two apart would push each other out of the cache.)
constexpr int64_t kTile = 32;

template <class T>
void transpose_tile(T* to, int64_t to_step, const T* from, int64_t from_step, int64_t rows, int64_t columns) {
  T tile[kTile][kTile];
  for (int64_t j = 0; j < columns; ++j)
    for (int64_t i = 0; i < rows; ++i) tile[i][j] = from[i + j * from_step];
  for (int64_t i = 0; i < rows; ++i) std::copy_n(tile[i], columns, to + i * to_step);
}

template <class T>
bool transpose(const Operand& y, const Operand& x) {
  if (y.rank != 2 || !y.dense || x.strides[0] != 1 || x.strides[1] < y.dims[0]) return false;
  const int64_t rows = y.dims[0], columns = y.dims[1], step = x.strides[1];
  const T* from = reinterpret_cast<const T*>(x.data);
  T* to = reinterpret_cast<T*>(y.data);
  parallel_for((rows + kTile - 1) / kTile, std::max<int64_t>(1, kGrain / (kTile * columns)), [&](int64_t begin, int64_t end) {
    for (int64_t i0 = begin * kTile; i0 < std::min(end * kTile, rows); i0 += kTile)
      for (int64_t j0 = 0; j0 < columns; j0 += kTile)
        transpose_tile(to + i0 * columns + j0, columns, from + i0 + j0 * step, step, std::min(kTile, rows - i0), std::min(kTile, columns - j0));
  });
  return true;
}

// Same dtype: no conversion, and no rounding of integers through floating point.
template <class T>
void copy_same(const Operand& y, const Operand& x, int64_t n) {
  if (transpose<T>(y, x)) return;
  parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
    T buffer[kBlock];
    const T* from = reinterpret_cast<const T*>(x.data);
    T* to = reinterpret_cast<T*>(y.data);
    const auto gather = [&](T* out, int64_t at, int64_t count) {
      x.for_each_run(at, count, [&](int64_t offset, int64_t step, int64_t run, int64_t place) {
        if (step == 1) std::copy_n(from + offset, run, out + place);
        else for (int64_t i = 0; i < run; ++i) out[place + i] = from[offset + i * step];
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

}  // namespace

void copy(View y, View x) {
  if (y.size() == 0) return;
  if (y.dtype == x.dtype) {
    const auto operands = operands_of(std::array<View, 2>{y, x});
    dispatch(y.dtype, [&]<class T>() { copy_same<T>(operands[0], operands[1], y.size()); });
  } else if (y.dtype == DType::f64 || x.dtype == DType::f64 || x.dtype == DType::i64 || x.dtype == DType::i32) {
    map_as<double>([](double v) { return v; }, y, x);
  } else {
    map_as<float>([](float v) { return v; }, y, x);
  }
}

RT_ISA_END
