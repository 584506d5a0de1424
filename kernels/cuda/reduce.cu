#include "kernels/reduce.h"

#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/reducers.cuh"

namespace ringtape::cuda {
namespace {

template <class T>
struct ReduceSum : OfNumbers<T, Sum> {
  using C = compute_t<T>;
  T* y;
  C divisor;
  ReduceSum(T* to, C by) : y(to), divisor(by) {}
  __device__ void finish(int64_t o, C sum) const { y[o] = T(sum / divisor); }
};

template <class T>
struct ReduceMax : OfNumbers<T, Max> {
  T* y;
  explicit ReduceMax(T* to) : y(to) {}
  __device__ void finish(int64_t o, compute_t<T> top) const { y[o] = T(top); }
};

// The number of elements that equal the largest.
template <class T>
struct ReduceTies {
  using C = compute_t<T>;
  struct Acc { C top, count; };
  C* ties;
  template <class A>
  static __device__ A identity() { return {Max::identity<C>(), 0}; }
  static __device__ __forceinline__ Acc combine(const Acc& a, const Acc& b) {
    return {Max::combine(a.top, b.top), (a.top >= b.top ? a.count : C(0)) + (b.top >= a.top ? b.count : C(0))};
  }
  template <int N>
  static __device__ Acc of(const C (&x)[N]) {
    Acc all{x[0], 0};
    for (int i = 1; i < N; ++i) all.top = Max::combine(all.top, x[i]);
    for (int i = 0; i < N; ++i) all.count += x[i] == all.top ? C(1) : C(0);
    return all;
  }
  __device__ void finish(int64_t o, const Acc& all) const { ties[o] = all.count; }
};

// The largest element, and the sum of exp(x - largest). If the largest is infinite it is the result: subtracting it
// would give NaN.
template <class T>
struct ReduceLogSumExp {
  using C = compute_t<T>;
  struct Acc { C top, sum; };
  T* y;
  template <class A>
  static __device__ A identity() { return {Max::identity<C>(), 0}; }
  static __device__ C shift(C top) { return top - top == 0 ? top : C(0); }
  static __device__ __forceinline__ Acc combine(const Acc& a, const Acc& b) {
    if (a.top == Max::identity<C>()) return b;
    if (b.top == Max::identity<C>()) return a;
    const C top = Max::combine(a.top, b.top), s = shift(top);
    return {top, a.sum * Math::exp(shift(a.top) - s) + b.sum * Math::exp(shift(b.top) - s)};
  }
  template <int N>
  static __device__ Acc of(C (&x)[N]) {
    C top = x[0];
    for (int i = 1; i < N; ++i) top = Max::combine(top, x[i]);
    for (int i = 0; i < N; ++i) x[i] = Math::exp(x[i] - shift(top));
    return {top, pairwise<Sum>(x)};
  }
  __device__ void finish(int64_t o, const Acc& all) const { y[o] = T(Math::log(all.sum) + shift(all.top)); }
};

template <class T>
struct ReduceMoments : Moments<T> {
  using typename Moments<T>::C, typename Moments<T>::Acc;
  T *y, *mean;
  C n, divisor;
  ReduceMoments(T* var, T* center, C count, C by) : y(var), mean(center), n(count), divisor(by) {}
  __device__ void finish(int64_t o, const Acc& all) const {
    y[o] = T(all.squares / divisor);
    mean[o] = T(n == 0 ? std::numeric_limits<C>::quiet_NaN() : all.mean);
  }
};

struct MaxBackward {
  template <class C>
  __device__ C operator()(C x, C y, C dy, C ties) const { return x == y ? dy / ties : C(0); }
};
struct LogSumExpBackward {
  template <class C>
  __device__ C operator()(C x, C y, C dy) const { return dy * Math::exp(x - y); }
};
struct VarBackward {
  double scale;
  template <class C>
  __device__ C operator()(C x, C mean, C dy) const { return dy * C(scale) * (x - mean); }
};

double reduced_per_output(const View& y, const View& x) { return double(x.size()) / double(y.size()); }

}  // namespace

void sum_forward(View y, View x) {
  dispatch_float(y.dtype, [&]<class T>() { reduce<T>(ReduceSum<T>(y.as<T>(), 1), y, x); });
}

void mean_forward(View y, View x) {
  dispatch_float(y.dtype,
                 [&]<class T>() { reduce<T>(ReduceSum<T>(y.as<T>(), compute_t<T>(reduced_per_output(y, x))), y, x); });
}

void max_forward(View y, View x) {
  dispatch_float(y.dtype, [&]<class T>() { reduce<T>(ReduceMax<T>(y.as<T>()), y, x); });
}

// First counts the largest elements, among which dy is shared.
void max_backward(View dx, View x, View y, View dy) {
  dispatch_float(y.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const Tensor ties(y.shape(), dtype_of<C>::value, y.device);
    reduce<T>(ReduceTies<T>{View(ties).as<C>()}, y, x);
    map_as<T, T, T, T, C>(MaxBackward{}, dx, x, y, dy, View(ties));
  });
}

void logsumexp_forward(View y, View x) {
  dispatch_float(y.dtype, [&]<class T>() { reduce<T>(ReduceLogSumExp<T>{y.as<T>()}, y, x); });
}

void logsumexp_backward(View dx, View x, View y, View dy) { map(LogSumExpBackward{}, dx, x, y, dy); }

void var_forward(View y, View mean, View x, double correction) {
  dispatch_float(y.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const double n = reduced_per_output(y, x);
    reduce<T>(ReduceMoments<T>(y.as<T>(), mean.as<T>(), C(n), C(std::max(0.0, n - correction))), y, x);
  });
}

void var_backward(View dx, View x, View mean, View dy, double scale) { map(VarBackward{scale}, dx, x, mean, dy); }

}  // namespace ringtape::cuda
