#include "kernels/copy.h"

#include "kernels/cuda/elementwise.cuh"

namespace ringtape::cuda {
namespace {

struct Identity {
  template <class T> __device__ T operator()(T x) const { return x; }
};

template <class U> __global__ void copy_strided(U* y, const U* x, Index<2> index, uint32_t n) {
  for (int64_t i = thread_in_grid(); i < n; i += threads_in_grid()) {
    int64_t at[2];
    index.offsets(uint32_t(i), at);
    y[at[0]] = x[at[1]];
  }
}

// Tiles pass through shared memory, so that x is read along its contiguous axis (rows) and y is written along its own
// (columns).
constexpr int kTile = 32;
struct Transposition {
  int64_t rows, columns;   // of y; y is contiguous along columns, x along rows
  int64_t y_step, x_step;  // strides of y's rows and of x's columns
  uint32_t row_tiles, column_tiles, tiles;
};

template <class U> __global__ void copy_transposed(U* y, const U* x, Transposition t, Index<2> batch) {
  SHARED_ARRAY(U, tile, [kTile][kTile + 1]);
  const int lane = int(threadIdx.x), first = int(threadIdx.y);
  for (uint32_t number = blockIdx.x; number < t.tiles; number += gridDim.x) {
    int64_t at[2];
    batch.offsets(number / t.column_tiles / t.row_tiles, at);
    const int64_t row = int64_t(number / t.column_tiles % t.row_tiles) * kTile,
                  column = int64_t(number % t.column_tiles) * kTile;
    for (int j = first; j < kTile; j += int(blockDim.y))
      if (row + lane < t.rows && column + j < t.columns)
        tile[j][lane] = x[at[1] + row + lane + (column + j) * t.x_step];
    __syncthreads();
    for (int j = first; j < kTile; j += int(blockDim.y))
      if (row + j < t.rows && column + lane < t.columns)
        y[at[0] + (row + j) * t.y_step + column + lane] = tile[lane][j];
    __syncthreads();
  }
}

// The axis along which x is contiguous while y is contiguous along its last; -1 if a transposition does not pay.
int transposed_axis(const Layout<2>& l) {
  const int last = l.rank - 1;
  if (l.strides[0][last] != 1 || l.strides[1][last] == 1 || l.dims[last] < kTile / 4) return -1;
  for (int d = 0; d < last; ++d)
    if (l.strides[1][d] == 1 && l.dims[d] >= kTile / 4) return d;
  return -1;
}

template <class U> void transpose(Device device, U* y, const U* x, const Layout<2>& l, int axis) {
  const int last = l.rank - 1;
  Layout<2> batch;
  for (int d = 0; d < last; ++d) {
    if (d == axis) continue;
    batch.dims[batch.rank] = l.dims[d];
    for (size_t k = 0; k < 2; ++k) batch.strides[k][batch.rank] = l.strides[k][d];
    ++batch.rank;
  }
  Transposition t{l.dims[axis], l.dims[last], l.strides[0][axis], l.strides[1][last], 0, 0, 0};
  t.row_tiles = uint32_t((t.rows + kTile - 1) / kTile);
  t.column_tiles = uint32_t((t.columns + kTile - 1) / kTile);
  t.tiles = t.row_tiles * t.column_tiles * uint32_t(batch.size());
  const unsigned blocks = covering(device, int64_t(t.tiles) * 256).blocks.x;
  launch<copy_transposed<U>>(device, Grid{dim3(blocks), dim3(kTile, 8)}, y, x, t, Index<2>(batch));
}

template <class U> void copy_same(View y, View x) {
  const Layout<2> whole = coalesce(std::array{y, x});
  if (whole.dense(0) && whole.dense(1)) {
    use(y.device.index);
    RT_GPU_CHECK(cudaMemcpyAsync(y.data, x.data, size_t(whole.size()) * sizeof(U), cudaMemcpyDeviceToDevice,
                                 compute_stream(y.device.index)));
    return;
  }
  split(whole, kMaxElements, [&](const Layout<2>& part, const std::array<int64_t, 2>& offsets) {
    U* to = y.as<U>() + offsets[0];
    const U* from = x.as<U>() + offsets[1];
    const int axis = transposed_axis(part);
    if (axis >= 0) transpose(y.device, to, from, part, axis);
    else
      launch<copy_strided<U>>(y.device, covering(y.device, part.size()), to, from, Index<2>(part),
                              uint32_t(part.size()));
  });
}

// Conversions between floats, and from bytes to floats, are common when dense, and have their own kernel.
template <class Y> void convert_to_float(View y, View x) {
  if (x.dtype == DType::u8) return map_as<Y, uint8_t>(Identity{}, y, x);
  dispatch_float(x.dtype, [&]<class X>() {
    if constexpr (!std::is_same_v<X, Y>) map_as<Y, X>(Identity{}, y, x);
  });
}

}  // namespace

void copy(View y, View x) {
  if (y.size() == 0) return;
  const auto exact_in_double = [](DType d) { return d == DType::f64 || d == DType::i64 || d == DType::i32; };
  if (y.dtype == x.dtype) {
    dispatch(y.dtype, [&]<class T>() { copy_same<bits_t<T>>(y, x); });
  } else if (is_float(y.dtype) && (is_float(x.dtype) || x.dtype == DType::u8)) {
    dispatch_float(y.dtype, [&]<class Y>() { convert_to_float<Y>(y, x); });
  } else if (!is_float(y.dtype) && !is_float(x.dtype)) {
    map_any<int64_t>(Identity{}, y, x);
  } else if (exact_in_double(y.dtype) || exact_in_double(x.dtype)) {
    map_any<double>(Identity{}, y, x);
  } else {
    map_any<float>(Identity{}, y, x);
  }
}

}  // namespace ringtape::cuda
