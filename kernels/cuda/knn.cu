#include "kernels/knn.h"

#include <algorithm>

#include "core/tensor.h"
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/vector.cuh"
#include "kernels/matmul.h"

namespace ringtape::cuda {
namespace {

// A tile of products, 64 MiB: large enough for an efficient matrix product, by cuBLASLt if available.
constexpr int64_t kQueries = 2048, kRows = 8192;
constexpr int kSelectThreads = 256;

// Sorts keys[0, n), n a power of two, in descending order by Batcher's bitonic network. Every thread of the block must
// call it, after a barrier; all see the result.
__device__ void sort_keys(uint64_t* keys, int n) {
  for (int size = 2; size <= n; size *= 2)
    for (int step = size / 2; step > 0; step /= 2) {
      for (int i = int(threadIdx.x); i < n / 2; i += int(blockDim.x)) {
        const int low = i / step * 2 * step + i % step, high = low + step;
        const uint64_t a = keys[low], b = keys[high];
        const bool falling = (low & size) == 0;
        if ((a < b) == falling) keys[low] = b, keys[high] = a;
      }
      __syncthreads();
    }
}

// One block per query. best (Q, k), the keys of its nearest rows so far in descending order, is updated with products
// (Q, n) of rows `first` on. `room` is a power of two, at least k + kSelectThreads: candidates are collected after the
// k best until the next ones might not fit.
__global__ void __launch_bounds__(kSelectThreads)
    select_kernel(uint64_t* best, const float* products, int64_t first, int n, int k, int room) {
  SHARED_DYN(uint64_t, keys);
  SHARED_ARRAY(int, count, [1]);
  best += int64_t(blockIdx.x) * k, products += int64_t(blockIdx.x) * n;
  for (int i = int(threadIdx.x); i < room; i += kSelectThreads) keys[i] = i < k ? best[i] : 0;
  if (threadIdx.x == 0) *count = k;
  __syncthreads();
  uint64_t least = keys[k - 1];
  for (int base = 0; base < n; base += kSelectThreads) {
    const int i = base + int(threadIdx.x);
    const uint64_t key = i < n ? NeighbourKey::of(products[i], first + i) : 0;
    if (key > least) keys[atomicAdd(count, 1)] = key;
    __syncthreads();
    const int filled = *count;
    if (filled + kSelectThreads > room || base + kSelectThreads >= n) {
      sort_keys(keys, room);
      least = keys[k - 1];
      for (int j = k + int(threadIdx.x); j < room; j += kSelectThreads) keys[j] = 0;
      if (threadIdx.x == 0) *count = k;
    }
    __syncthreads();
  }
  for (int i = int(threadIdx.x); i < k; i += kSelectThreads) best[i] = keys[i];
}

__global__ void unpack_kernel(float* values, int64_t* indices, const uint64_t* keys, int64_t n) {
  for (int64_t i = thread_in_grid(); i < n; i += threads_in_grid()) {
    values[i] = NeighbourKey::product(keys[i]);
    indices[i] = NeighbourKey::row(keys[i]);
  }
}

View slice_rows(View x, int64_t begin, int64_t count) {
  x.data = x.as<float>() + begin * x.dims[1];
  x.dims[0] = count;
  return x;
}

}  // namespace

void nearest_rows(View values, View indices, View queries, View bank) {
  const int64_t count = queries.dims[0], size = bank.dims[0], k = values.dims[1];
  RT_CHECK_AS(UsageError, k <= kMaxNearest, "nearest_rows: ", k, " neighbours; on CUDA at most ", kMaxNearest);
  if (count == 0 || k == 0) return;
  const Device device = values.device;
  const Tensor best = zeros({count, k}, DType::i64, device);
  uint64_t* const keys = static_cast<uint64_t*>(View(best).data);
  const Tensor products({std::min(count, kQueries), std::min(size, kRows)}, DType::f32, device);
  const int room = power_of_two(k + kSelectThreads, int(2 * kMaxNearest));
  for (int64_t q = 0; q < count; q += kQueries)
    for (int64_t r = 0; r < size; r += kRows) {
      const int64_t m = std::min(kQueries, count - q), n = std::min(kRows, size - r);
      const Tensor tile = products.window({m, n}, {n, 1});
      linear_forward(tile, slice_rows(queries, q, m), slice_rows(bank, r, n), View{}, Activation::none);
      launch<select_kernel>(device, Grid{dim3(unsigned(m)), dim3(kSelectThreads), size_t(room) * sizeof(uint64_t)},
                            keys + q * k, View(tile).as<float>(), r, int(n), int(k), room);
    }
  launch<unpack_kernel>(device, covering(device, count * k), values.as<float>(), indices.as<int64_t>(), keys,
                        count * k);
}

}  // namespace ringtape::cuda
