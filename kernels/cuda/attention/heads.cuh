#pragma once
#include "kernels/cuda/gemm/matrix.cuh"

namespace ringtape::cuda {
namespace {

// (A, H, rows, columns), of any strides.
template <class T> struct Heads {
  T* data = nullptr;
  int64_t heads = 1, strides[4] = {};
  Heads() = default;
  explicit Heads(const View& x)
      : data(x.as<T>()), heads(x.dims[1]), strides{x.strides[0], x.strides[1], x.strides[2], x.strides[3]} {}
  __device__ T* of(int64_t head) const { return data + head / heads * strides[0] + head % heads * strides[1]; }
  // As an operand of a product along its columns, and along its rows.
  __device__ Matrix<std::remove_const_t<T>> rows(int64_t head) const { return {of(head), 0, strides[2], strides[3]}; }
  __device__ Matrix<std::remove_const_t<T>> columns(int64_t head) const {
    return {of(head), 0, strides[3], strides[2]};
  }
};

// Of queries and keys; the features are those of q and k, and of v.
struct AttentionSizes {
  int64_t heads, queries, keys;
  int features, value_features;
  bool causal;
  double scale;
};

}  // namespace
}  // namespace ringtape::cuda
