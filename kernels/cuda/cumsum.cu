#include "kernels/cumsum.h"

#include "kernels/cuda/block.cuh"
#include "kernels/cuda/elementwise.cuh"

namespace ringtape::cuda {
namespace {

constexpr int kScanThreads = 256;

// The sum of the values of this lane and those below it.
template <class A> __device__ A warp_scan(A own) {
  const int lane = thread_in_block() % kWarp;
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const A before = __shfl_up_sync(kAllLanes, own, unsigned(distance));
    if (lane >= distance) own += before;
  }
  return own;
}

// A block per row of (rows, n), a piece of kScanThreads elements after the other.
template <class T, class Y, class A>
__global__ void __launch_bounds__(kScanThreads) cumsum_row(Y* y, const T* x, int64_t n, bool reverse) {
  SHARED_ARRAY(A, part, [kScanThreads / kWarp]);
  const int warp = thread_in_block() / kWarp, lane = thread_in_block() % kWarp;
  const int64_t row = int64_t(blockIdx.x) * n;
  A before = 0;  // all pieces so far
  for (int64_t base = 0; base < n; base += kScanThreads) {
    const int64_t i = base + threadIdx.x, at = row + (reverse ? n - 1 - i : i);
    const A own = warp_scan(i < n ? widen<A>(x[at]) : A(0));
    if (lane == kWarp - 1) part[warp] = own;
    __syncthreads();
    A sum = before;
    for (int w = 0; w < kScanThreads / kWarp; ++w) {
      if (w < warp) sum += part[w];
      before += part[w];
    }
    if (i < n) y[at] = narrow<Y>(sum + own);
    __syncthreads();  // before the next piece overwrites `part`
  }
}

// A thread per column (o, r) of (O, n, R).
template <class T, class Y, class A>
__global__ void __launch_bounds__(kScanThreads)
    cumsum_column(Y* y, const T* x, int64_t columns, int64_t n, int64_t row, bool reverse) {
  const int64_t column = thread_in_grid();
  if (column >= columns) return;
  const int64_t first = column / row * n * row + column % row;
  A sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t at = first + (reverse ? n - 1 - i : i) * row;
    sum += widen<A>(x[at]);
    y[at] = narrow<Y>(sum);
  }
}

}  // namespace

void cumsum_forward(View y, View x, bool reverse) {
  if (x.size() == 0) return;
  const int64_t n = x.dims[1], row = x.dims[2], columns = x.dims[0] * row;
  dispatch(x.dtype, [&]<class T>() {
    using A = running_t<T>;
    using Y = std::conditional_t<std::is_same_v<A, uint64_t>, int64_t, T>;
    const auto grid = [](int64_t blocks) { return Grid{dim3(unsigned(blocks)), dim3(kScanThreads)}; };
    if (row == 1) launch<cumsum_row<T, Y, A>>(x.device, grid(columns), y.as<Y>(), x.as<T>(), n, reverse);
    else
      launch<cumsum_column<T, Y, A>>(x.device, grid(divide_up(columns, kScanThreads)), y.as<Y>(), x.as<T>(), columns, n,
                                     row, reverse);
  });
}

}  // namespace ringtape::cuda
