#pragma once
#include "kernels/cuda/rows.cuh"

namespace ringtape::cuda {
namespace {

// exp for results that are stored as T. For 16-bit T the fast version is exact enough (2 ulp in f32), at a quarter of
// the work.
template <class T> __device__ compute_t<T> exp_of(compute_t<T> x) {
  if constexpr (is_half_v<T>) return __expf(x);
  else return Math::exp(x);
}

template <class C> struct ExpSum { C top, sum; };

// The largest element of a row and the sum of exp(x - largest): logsumexp is top + log(sum) before rounding.
template <class T, class R> __device__ ExpSum<compute_t<T>> exp_sum(R& row) {
  using C = compute_t<T>;
  const C top = row.template reduce<Max>([](int64_t, C x) { return x; });
  return {top, row.template reduce<Sum>([top](int64_t, C x) { return exp_of<T>(x - top); })};
}

}  // namespace
}  // namespace ringtape::cuda
