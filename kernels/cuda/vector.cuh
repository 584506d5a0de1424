#pragma once
#include <bit>

#include "kernels/cuda/launch.cuh"

// Several elements that one instruction loads or stores: at most 16 bytes.
namespace ringtape::cuda {
namespace {

template <class T, int N> struct alignas(sizeof(T) * N) Vec { T x[N]; };

template <class T> constexpr int kPackOf = 16 / int(sizeof(T));  // elements in 16 bytes

template <int N, class T> __device__ Vec<T, N> load(const T* from) {
  return COUNTED(*reinterpret_cast<const Vec<T, N>*>(from));
}
template <class T, int N> __device__ void store(T* to, const Vec<T, N>& v) {
#ifdef __CUDA_ARCH__  // nvcc 13 splits some stores of a struct into small ones
  if constexpr (sizeof(v) == 16) {
    *reinterpret_cast<uint4*>(to) = std::bit_cast<uint4>(v);
    return;
  }
#endif
  COUNTED(*reinterpret_cast<Vec<T, N>*>(to)) = v;
}

// Elements per access for all operands: `wide` if all are aligned to `wide` elements, else 1.
template <class... T> int aligned_width(int wide, const T*... operands) {
  return ((reinterpret_cast<uintptr_t>(operands) % (sizeof(T) * size_t(wide)) == 0) && ...) ? wide : 1;
}

// For grid-stride loops over `items`: enough threads to hide latency, at most twice what the device can hold.
inline Grid covering(Device device, int64_t items, int threads = 256) {
  const int64_t most = int64_t(properties(device.index).multiprocessors) * 2 * (2048 / threads);
  const int64_t blocks = (items + threads - 1) / threads;
  return {dim3(unsigned(blocks < most ? blocks : most)), dim3(unsigned(threads))};
}

// A block per item, where each block needs memory of its own: at most four on a multiprocessor.
inline Grid covering_with_scratch(Device device, int64_t items, int threads) {
  const int64_t most = int64_t(properties(device.index).multiprocessors) * 4;
  return {dim3(unsigned(items < most ? items : most)), dim3(unsigned(threads))};
}

__device__ inline int64_t thread_in_grid() { return int64_t(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ inline int64_t threads_in_grid() { return int64_t(gridDim.x) * blockDim.x; }

}  // namespace
}  // namespace ringtape::cuda
