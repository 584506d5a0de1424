#include "kernels/index_select.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/cuda/block.cuh"
#include "kernels/cuda/vector.cuh"

namespace ringtape::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kUnroll = 4;             // loads in flight per thread
constexpr int64_t kBlocksAlong = 512;  // maximum for one row; enough to keep any GPU busy

// Rows of `units` pieces of type U, for any element type. One team per row of y; several blocks share long rows.
template <class U>
__global__ void __launch_bounds__(kThreads) index_select_rows(U* y, const U* x, const int64_t* index, int64_t rows,
                                                              int64_t count, int64_t n, int64_t units, U missing) {
  const int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= rows) return;
  const int64_t from = index[row % count];
  const bool known = from >= 0 && from < n;
  const U* const source = x + (known ? (row / count * n + from) * units : 0);
  const int64_t step = int64_t(gridDim.y) * blockDim.x * kUnroll;
  for (int64_t at = int64_t(blockIdx.y) * blockDim.x * kUnroll + threadIdx.x; at < units; at += step) {
    U piece[kUnroll] = {};
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
      if (const int64_t i = at + int64_t(u) * blockDim.x; i < units) piece[u] = known ? source[i] : missing;
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
      if (const int64_t i = at + int64_t(u) * blockDim.x; i < units) y[row * units + i] = piece[u];
  }
}

// NaN for floating dtypes, else 0, repeated to fill 16 bytes.
Vec<char, 16> missing_elements(DType dtype) {
  Vec<char, 16> bytes{};
  if (!is_float(dtype)) return bytes;
  dispatch_float(dtype, [&]<class T>() {
    for (size_t i = 0; i < 16 / sizeof(T); ++i) {
      const T nan(std::numeric_limits<compute_t<T>>::quiet_NaN());
      std::memcpy(bytes.x + i * sizeof(T), &nan, sizeof(T));
    }
  });
  return bytes;
}

template <class U> void copy_rows(const View& y, const View& x, const View& index) {
  const int64_t count = y.dims[1], rows = y.dims[0] * count,
                units = y.dims[2] * int64_t(size_of(y.dtype)) / int64_t(sizeof(U));
  const int team = power_of_two(divide_up(units, kUnroll), kThreads), teams = kThreads / team;
  const int64_t blocks = divide_up(rows, teams), along = std::min(divide_up(units, team * kUnroll), kBlocksAlong);
  U missing;
  const Vec<char, 16> bytes = missing_elements(y.dtype);
  std::memcpy(&missing, &bytes, sizeof(U));
  launch<index_select_rows<U>>(y.device,
                               Grid{dim3(unsigned(blocks), unsigned(along)), dim3(unsigned(team), unsigned(teams))},
                               y.as<U>(), x.as<U>(), index.as<int64_t>(), rows, count, x.dims[1], units, missing);
}

}  // namespace

void index_select_forward(View y, View x, View index) {
  if (y.size() == 0) return;
  const auto pieces = [&](size_t bytes) {
    const auto fits = [bytes](const void* p) { return reinterpret_cast<uintptr_t>(p) % bytes == 0; };
    return size_t(y.dims[2]) * size_of(y.dtype) % bytes == 0 && fits(y.data) && fits(x.data);
  };
  if (pieces(16)) return copy_rows<Vec<uint32_t, 4>>(y, x, index);
  if (pieces(8)) return copy_rows<uint64_t>(y, x, index);
  if (pieces(4)) return copy_rows<uint32_t>(y, x, index);
  if (pieces(2)) return copy_rows<uint16_t>(y, x, index);
  copy_rows<uint8_t>(y, x, index);
}

namespace {

// Adds a row of dy to the lane's part of the sum.
template <class T, class C>
__device__ void add(C (&sum)[kUnroll], const T* dy, const int64_t (&from)[kUnroll], const bool (&exists)[kUnroll]) {
#pragma unroll
  for (int u = 0; u < kUnroll; ++u)
    if (exists[u]) sum[u] += C(dy[from[u]]);
}

// Each warp computes part of one dx[:, n, :]: it searches the whole index for n and adds the matching rows in that
// order. So no two threads add to the same element, and no list is needed. A warp covers kUnroll * 32 of the (o, r) of
// its n, enough to make a search worthwhile.
template <class T>
__global__ void __launch_bounds__(kThreads)
    index_select_sum(T* dx, const T* dy, const int64_t* index, int64_t outer, int64_t n, int64_t count, int64_t row) {
  using C = compute_t<T>;
  const int lane = int(threadIdx.x);
  const int64_t own = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
  if (own >= n) return;
  for (int64_t first = int64_t(blockIdx.y) * kUnroll * kWarp; first < outer * row;
       first += int64_t(gridDim.y) * kUnroll * kWarp) {
    C sum[kUnroll] = {};
    int64_t from[kUnroll], to[kUnroll];
    bool exists[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int64_t at = first + u * kWarp + lane, o = at / row, r = at % row;
      exists[u] = at < outer * row;
      from[u] = o * count * row + r;
      to[u] = (o * n + own) * row + r;
    }
    for (int64_t base = 0; base < count; base += kUnroll * kWarp) {
      bool equal[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const int64_t i = base + u * kWarp + lane;
        equal[u] = i < count && index[i] == own;
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u)
        for (unsigned found = __ballot_sync(kAllLanes, equal[u]); found; found &= found - 1)
          add(sum, dy + (base + u * kWarp + __ffs(int(found)) - 1) * row, from, exists);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
      if (exists[u]) dx[to[u]] = T(sum[u]);
  }
}

}  // namespace

void index_select_backward(View dx, View dy, View index) {
  if (dx.size() == 0) return;
  const int64_t outer = dx.dims[0], n = dx.dims[1], row = dx.dims[2];
  const unsigned along = unsigned(std::min(divide_up(outer * row, kUnroll * kWarp), kBlocksAlong));
  dispatch_float(dx.dtype, [&]<class T>() {
    launch<index_select_sum<T>>(
        dx.device, Grid{dim3(unsigned(divide_up(n, kThreads / kWarp)), along), dim3(kWarp, kThreads / kWarp)},
        dx.as<T>(), dy.as<T>(), index.as<int64_t>(), outer, n, dy.dims[1], row);
  });
}

}  // namespace ringtape::cuda
