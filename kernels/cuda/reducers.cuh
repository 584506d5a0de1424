#pragma once
#include "kernels/cuda/block.cuh"

namespace ringtape::cuda {
namespace {

// Combines N > 0 numbers pairwise.
template <class R, int N, class C> __device__ C pairwise(C (&x)[N]) {
#pragma unroll
  for (int half = 1; half < N; half *= 2)
#pragma unroll
    for (int i = 0; i + half < N; i += 2 * half) x[i] = R::combine(x[i], x[i + half]);
  return x[0];
}

// Reducers (reduce.cuh) without finish(). This one is for sums and maxima.
template <class T, class R> struct OfNumbers : R {
  using C = compute_t<T>;
  using Acc = C;
  template <int N> static __device__ C of(C (&x)[N]) { return pairwise<R>(x); }
};

// Count, mean and sum of squared distances from it. Two sets are merged as in Chan, Golub and LeVeque, "Updating
// formulae and a pairwise algorithm for computing sample variances" (1979). As precise as two passes, in one.
template <class T> struct Moments {
  using C = compute_t<T>;
  struct Acc {
    C n, mean, squares;
  };
  template <class A> static __device__ A identity() { return {0, 0, 0}; }
  static __device__ __forceinline__ Acc combine(const Acc& a, const Acc& b) {
    if (b.n == 0) return a;
    if (a.n == 0) return b;  // its distance from b may be too large for a square
    return combine(a, b, share(a, b));
  }
  // Of two sets that are not empty, by b's share of both: one division for many of the same sizes.
  static __device__ __forceinline__ C share(const Acc& a, const Acc& b) { return b.n / (a.n + b.n); }
  static __device__ __forceinline__ Acc combine(const Acc& a, const Acc& b, C share) {
    const C d = b.mean - a.mean;
    return {a.n + b.n, a.mean + d * share, a.squares + b.squares + d * d * a.n * share};
  }
  template <int N> static __device__ Acc of(const C (&x)[N]) {
    C v[N];
    static_assert((N & (N - 1)) == 0);  // so a factor of 1 / N is exact, and the sum does not exceed the largest
    for (int i = 0; i < N; ++i) v[i] = x[i] * (C(1) / N);
    const C center = pairwise<Sum>(v);
    for (int i = 0; i < N; ++i) v[i] = (x[i] - center) * (x[i] - center);
    return {C(N), center, pairwise<Sum>(v)};
  }
};

}  // namespace
}  // namespace ringtape::cuda
