#pragma once
#include <tuple>

#include "kernels/cuda/gemm/gemm_mma.cuh"

// Matrices in memory as operands and results of gemm() and gemm_mma().
namespace ringtape::cuda {
namespace {

// A batch of matrices in memory, as an operand of gemm().
template <class T> struct Matrix {
  const T* data;
  int64_t batch_stride, outer_stride, depth_stride;
  __device__ bool outer_first() const { return outer_stride == 1; }
  __device__ const T& at(int64_t b, int64_t i, int64_t p) const {
    return data[b * batch_stride + i * outer_stride + p * depth_stride];
  }
};

// The same, of gemm_mma().
template <class T, bool first> struct PackedMatrix : Matrix<T> {
  int64_t outer, depth;
  static constexpr bool outer_first() { return first; }
  bool packed() const {
    const auto [stride, pitch, length] = first ? std::tuple(this->outer_stride, this->depth_stride, outer)
                                               : std::tuple(this->depth_stride, this->outer_stride, depth);
    constexpr int kPack = kPackOf<T>;
    return stride == 1 && pitch % kPack == 0 && length % kPack == 0 && this->batch_stride % kPack == 0 &&
           aligned_width(kPack, this->data) == kPack;
  }
  using Walk = LinearWalk<T>;
  __device__ Walk walk(int64_t b, int64_t i, int64_t p) const { return {&this->at(b, i, p), this->depth_stride}; }
};

// (chunks, batch, m, n): what each chunk of the depth adds to a product.
template <class C> struct Parts {
  using Element = C;
  using Sums = NoSums;
  C* part;
  int64_t batch, m, n;
  __device__ C* at(int64_t b, int64_t q, int64_t i, int64_t j) const {
    return part + ((q * batch + b) * m + i) * n + j;
  }
  __device__ void put(int64_t b, int64_t q, int64_t i, int64_t j, C sum) const { *at(b, q, i, j) = sum; }
  bool aligned() const { return true; }
  __device__ bool packed() const { return n % kPackOf<C> == 0; }
  __device__ void put_pack(int64_t b, int64_t q, int64_t i, int64_t j, const float* sums, NoSums&) const {
    store(at(b, q, i, j), load<kPackOf<C>>(sums));
  }
};

}  // namespace
}  // namespace ringtape::cuda
