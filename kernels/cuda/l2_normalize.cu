#include "kernels/l2_normalize.h"

#include "kernels/cuda/rows.cuh"

namespace ringtape::cuda {
namespace {

// NaN stays NaN.
template <class C> __device__ C at_least(C x, C least) { return x < least ? least : x; }

template <class T> struct L2NormalizeForward {
  using Element = T;
  using C = compute_t<T>;
  const T* in[1];
  T* y;
  C *norm, eps;
  template <class R> __device__ void operator()(R& row) const {
    const C length = Math::sqrt(row.template reduce<Sum>([](int64_t, C x) { return x * x; }));
    if (row.exists() && row.writes()) norm[row.index()] = length;
    const C scale = 1 / at_least(length, eps);
    row.write(y, [=](int64_t, C x) { return x * scale; });
  }
};

template <class T> struct L2NormalizeBackward {
  using Element = T;
  using C = compute_t<T>;
  const T* in[2];
  T* dx;
  const C* norm;
  C eps;
  template <class R> __device__ void operator()(R& row) const {
    const C length = row.exists() ? norm[row.index()] : C(0);
    const C sum = row.template reduce<Sum>([](int64_t, C y, C dy) { return y * dy; });
    const C dot = length > eps ? sum : C(0), scale = 1 / at_least(length, eps);
    row.write(dx, [=](int64_t, C y, C dy) { return (dy - y * dot) * scale; });
  }
};

}  // namespace

void l2_normalize_forward(View y, View norm, View x, double eps) {
  dispatch_float(y.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const L2NormalizeForward<T> f{{x.as<T>()}, y.as<T>(), norm.as<C>(), C(eps)};
    for_each_row(y.device, f, y.as<T>(), rows_of(y), columns_of(y));
  });
}

void l2_normalize_backward(View dx, View y, View norm, View dy, double eps) {
  dispatch_float(dx.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const L2NormalizeBackward<T> f{{y.as<T>(), dy.as<T>()}, dx.as<T>(), norm.as<C>(), C(eps)};
    for_each_row(dx.device, f, dx.as<T>(), rows_of(dx), columns_of(dx));
  });
}

}  // namespace ringtape::cuda
