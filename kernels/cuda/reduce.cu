#include "kernels/cuda/reduce.cuh"

#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/reducers.cuh"
#include "kernels/reduce.h"

namespace ringtape::cuda {
namespace {

template <class T> struct ReduceSum : OfNumbers<T, Sum> {
  using C = compute_t<T>;
  T* y;
  C divisor;
  ReduceSum(T* to, C by) : y(to), divisor(by) {}
  __device__ void finish(int64_t o, C sum) const { y[o] = T(sum / divisor); }
};

struct Product {
  template <class A> static __device__ A identity() { return A(1); }
  template <class A> static __device__ A combine(A a, A b) { return a * b; }
};
// Of whole numbers, modulo 2^64.
template <class R> struct Whole : R {
  template <class A> static __device__ A combine(A a, A b) { return A(R::combine(uint64_t(a), uint64_t(b))); }
};
struct Min {  // NaN on either side gives NaN
  template <class A> static __device__ A identity() {
    using Limits = std::numeric_limits<A>;
    return Limits::has_infinity ? Limits::infinity() : Limits::max();
  }
  template <class A> static __device__ A combine(A a, A b) {
    const A low = b < a ? b : a;
    return b != b ? b : low;
  }
};

template <class T, class R> struct ReduceTo : OfNumbers<T, R> {
  T* y;
  explicit ReduceTo(T* to) : y(to) {}
  __device__ void finish(int64_t o, compute_t<T> all) const { y[o] = T(all); }
};

template <class T> struct ReduceNorm : OfNumbers<T, Sum> {
  T* y;
  explicit ReduceNorm(T* to) : y(to) {}
  template <int N> static __device__ T of(T (&x)[N]) {
    for (int i = 0; i < N; ++i) x[i] *= x[i];
    return pairwise<Sum>(x);
  }
  __device__ void finish(int64_t o, T squares) const { y[o] = Math::sqrt(squares); }
};

// The number of elements that equal the largest.
template <class T> struct ReduceTies {
  using C = compute_t<T>;
  struct Acc {
    C top, count;
  };
  C* ties;
  template <class A> static __device__ A identity() { return {Max::identity<C>(), 0}; }
  static __device__ __forceinline__ Acc combine(const Acc& a, const Acc& b) {
    const C top = Max::combine(a.top, b.top);
    return {top, (a.top == top ? a.count : C(0)) + (b.top == top ? b.count : C(0))};
  }
  template <int N> static __device__ Acc of(const C (&x)[N]) {
    Acc all{x[0], 0};
    for (int i = 1; i < N; ++i) all.top = Max::combine(all.top, x[i]);
    for (int i = 0; i < N; ++i) all.count += x[i] == all.top ? C(1) : C(0);
    return all;
  }
  __device__ void finish(int64_t o, const Acc& all) const { ties[o] = all.count; }
};

// The largest element, and the sum of exp(x - largest). If the largest is infinite it is the result: subtracting it
// would give NaN.
template <class T> struct ReduceLogSumExp {
  using C = compute_t<T>;
  struct Acc {
    C top, sum;
  };
  T* y;
  C *top, *log_sum;
  template <class A> static __device__ A identity() { return {Max::identity<C>(), 0}; }
  static __device__ C shift(C top) { return top - top == 0 ? top : C(0); }
  static __device__ __forceinline__ Acc combine(const Acc& a, const Acc& b) {
    if (a.top == Max::identity<C>()) return b;
    if (b.top == Max::identity<C>()) return a;
    const C top = Max::combine(a.top, b.top), s = shift(top);
    return {top, a.sum * Math::exp(shift(a.top) - s) + b.sum * Math::exp(shift(b.top) - s)};
  }
  template <int N> static __device__ Acc of(C (&x)[N]) {
    C top = x[0];
    for (int i = 1; i < N; ++i) top = Max::combine(top, x[i]);
    for (int i = 0; i < N; ++i) x[i] = Math::exp(x[i] - shift(top));
    return {top, pairwise<Sum>(x)};
  }
  __device__ void finish(int64_t o, const Acc& all) const {
    top[o] = shift(all.top), log_sum[o] = Math::log(all.sum);
    y[o] = T(log_sum[o] + top[o]);
  }
};

template <class T> struct ReduceMoments : Moments<T> {
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
  template <class C> __device__ C operator()(C x, C y, C dy, C ties) const { return x == y ? dy / ties : C(0); }
};
struct Negate {
  template <class C> __device__ C operator()(C x) const { return -x; }
};
struct LogSumExpBackward {
  template <class C> __device__ C operator()(C x, C top, C log_sum, C dy) const {
    return dy * Math::exp((x - top) - log_sum);
  }
};
struct VarBackward {
  double scale;
  template <class C> __device__ C operator()(C x, C mean, C dy) const { return dy * C(scale) * (x - mean); }
};

template <class R, class T> void reduce_to(const View& y, const View& x) { reduce<T>(ReduceTo<T, R>(y.as<T>()), y, x); }

template <class R> void reduce_floats(const View& y, const View& x) {
  dispatch_float(y.dtype, [&]<class T>() { reduce_to<R, T>(y, x); });
}

double reduced_per_output(const View& y, const View& x) { return double(x.size()) / double(y.size()); }

}  // namespace

void sum_forward(View y, View x) {
  if (y.dtype == DType::i64) reduce_to<Whole<Sum>, int64_t>(y, x);
  else reduce_floats<Sum>(y, x);
}
void prod_forward(View y, View x) {
  if (y.dtype == DType::i64) reduce_to<Whole<Product>, int64_t>(y, x);
  else if (y.dtype == DType::f32) reduce_to<Product, float>(y, x);
  else reduce_to<Product, double>(y, x);
}
void norm_forward(View y, View x) {
  if (y.dtype == DType::f32) reduce<float>(ReduceNorm<float>(y.as<float>()), y, x);
  else reduce<double>(ReduceNorm<double>(y.as<double>()), y, x);
}
void max_forward(View y, View x) {
  if (y.dtype == DType::i64) reduce_to<Max, int64_t>(y, x);
  else reduce_floats<Max>(y, x);
}
void min_forward(View y, View x) {
  if (y.dtype == DType::i64) reduce_to<Min, int64_t>(y, x);
  else reduce_floats<Min>(y, x);
}

void mean_forward(View y, View x) {
  dispatch_float(y.dtype,
                 [&]<class T>() { reduce<T>(ReduceSum<T>(y.as<T>(), compute_t<T>(reduced_per_output(y, x))), y, x); });
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

void min_backward(View dx, View x, View y, View dy) {
  const auto negated = [](View v) {
    const Tensor out(v.shape(), v.dtype, v.device);
    map_float(Negate{}, View(out), v);
    return out;
  };
  max_backward(dx, negated(x), negated(y), dy);
}

void logsumexp_forward(View y, View top, View log_sum, View x) {
  dispatch_float(y.dtype, [&]<class T>() {
    using C = compute_t<T>;
    reduce<T>(ReduceLogSumExp<T>{y.as<T>(), top.as<C>(), log_sum.as<C>()}, y, x);
  });
}

void logsumexp_backward(View dx, View x, View top, View log_sum, View dy) {
  dispatch_float(dx.dtype, [&]<class T>() {
    using C = compute_t<T>;
    map_as<T, T, C, C, T>(LogSumExpBackward{}, dx, x, top, log_sum, dy);
  });
}

void var_forward(View y, View mean, View x, double correction) {
  dispatch_float(y.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const double n = reduced_per_output(y, x);
    reduce<T>(ReduceMoments<T>(y.as<T>(), mean.as<T>(), C(n), C(std::max(0.0, n - correction))), y, x);
  });
}

void var_backward(View dx, View x, View mean, View dy, double scale) { map(VarBackward{scale}, dx, x, mean, dy); }

}  // namespace ringtape::cuda
