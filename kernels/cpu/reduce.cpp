#include "kernels/reduce.h"

#include "kernels/cpu/reduce.h"
#include "kernels/cpu/vector/math.h"

RT_ISA_BEGIN

namespace {

// combine() takes numbers or vectors. kMaps: whether map() is not the identity.
struct Sum {
  static constexpr bool kMaps = false;
  template <class C> static constexpr C identity() { return C(0); }
  template <class V> RT_INLINE static V combine(V a, V b) {
    if constexpr (std::is_same_v<V, int64_t>) return V(uint64_t(a) + uint64_t(b));
    else return a + b;
  }
  template <class C> RT_INLINE static C map(C x, C) { return x; }
};
struct Product : Sum {
  template <class C> static constexpr C identity() { return C(1); }
  template <class V> RT_INLINE static V combine(V a, V b) {
    if constexpr (std::is_same_v<V, int64_t>) return V(uint64_t(a) * uint64_t(b));
    else return a * b;
  }
};
struct Max {
  static constexpr bool kMaps = false;
  template <class C> static constexpr C identity() {
    using Limits = std::numeric_limits<C>;
    return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  }
  template <class V> RT_INLINE static V combine(V a, V b) { return max_or_nan(a, b); }
  template <class C> RT_INLINE static C map(C x, C) { return x; }
};
struct Min : Max {
  template <class C> static constexpr C identity() {
    using Limits = std::numeric_limits<C>;
    return Limits::has_infinity ? Limits::infinity() : Limits::max();
  }
  template <class V> RT_INLINE static V combine(V a, V b) { return min_or_nan(a, b); }
};
struct MappedSum : Sum {
  static constexpr bool kMaps = true;
};
struct SumDistance : MappedSum {  // from p
  template <class C> RT_INLINE static C map(C x, C p) { return x - p; }
};
struct SumSquaredDistance : MappedSum {  // from p
  template <class C> RT_INLINE static C map(C x, C p) { return (x - p) * (x - p); }
};
struct SumSquares : MappedSum {
  template <class C> RT_INLINE static C map(C x, C) { return x * x; }
};
struct SumExp : MappedSum {
  template <class C> RT_INLINE static C map(C x, C p) { return Math::exp(x - p); }
};
struct CountEqual : MappedSum {
  template <class C> RT_INLINE static C map(C x, C p) { return x == p ? C(1) : C(0); }
};

constexpr auto kAsIs = [](auto total, auto) { return total; };

// Calls f with memory for y in the compute type: y itself, or scratch that is converted afterwards.
template <class F> void in_compute_type(const View& y, const F& f) {
  if (y.dtype == DType::f64) return f(y.as<double>());
  const bool direct = y.dtype == DType::f32;
  std::vector<float> out(direct ? 0 : size_t(y.size()));
  f(direct ? y.as<float>() : out.data());
  if (!out.empty()) operands_of(std::array<View, 1>{y})[0].store(0, y.size(), out.data());
}

// Reduces floating-point or whole numbers (i64).
template <class R> void reduce_numbers(const View& y, const View& x) {
  const ReducePlan plan(y, x);
  if (y.dtype == DType::i64) return reduce<R, int64_t>(plan, y.as<int64_t>(), nullptr, kAsIs);
  in_compute_type(y, [&]<class C>(C* out) { reduce<R, C>(plan, out, nullptr, kAsIs); });
}

}  // namespace

void sum_forward(View y, View x) { reduce_numbers<Sum>(y, x); }
void prod_forward(View y, View x) { reduce_numbers<Product>(y, x); }
void norm_forward(View y, View x) {
  const ReducePlan plan(y, x);
  in_compute_type(y, [&]<class C>(C* out) {
    reduce<SumSquares, C>(plan, out, nullptr, [](double total, C) { return C(std::sqrt(total)); });
  });
}
void max_forward(View y, View x) { reduce_numbers<Max>(y, x); }
void min_forward(View y, View x) { reduce_numbers<Min>(y, x); }

void mean_forward(View y, View x) {
  const ReducePlan plan(y, x);
  const double n = double(plan.n_reduced);
  in_compute_type(
      y, [&]<class C>(C* out) { reduce<Sum, C>(plan, out, nullptr, [n](double total, C) { return C(total / n); }); });
}

void max_backward(View dx, View x, View y, View dy) {
  if (dx.size() == 0) return;
  const ReducePlan plan(y, x);
  dispatch_compute(y.dtype, [&]<class C>() {
    std::vector<C> buffer(size_t(y.size())), count(buffer);
    const C* const maxima = operands_of(std::array<View, 1>{y})[0].load(0, y.size(), buffer.data());
    reduce<CountEqual, C>(plan, count.data(), maxima, kAsIs);
    View ties = y;
    ties.data = count.data();
    ties.dtype = dtype_of<C>::value;
    map([]<class V>(V v, V top, V g, V n) { return v == top ? g / n : V(0); }, dx, x, y, dy, ties);
  });
}

void min_backward(View dx, View x, View y, View dy) { max_backward(dx, x, y, dy); }

void logsumexp_forward(View y, View top, View log_sum, View x) {
  const ReducePlan plan(y, x);
  in_compute_type(y, [&]<class C>(C* out) {
    C *const shift = top.as<C>(), *const log = log_sum.as<C>();
    reduce<Max, C>(plan, shift, nullptr, kAsIs);
    // An infinite maximum is the result; subtracting it would give NaN.
    for (int64_t i = 0; i < y.size(); ++i) shift[i] = std::isfinite(shift[i]) ? shift[i] : C(0);
    reduce<SumExp, C>(plan, log, shift, [](double total, C) { return C(std::log(total)); });
    for (int64_t i = 0; i < y.size(); ++i) out[i] = log[i] + shift[i];
  });
}

void logsumexp_backward(View dx, View x, View top, View log_sum, View dy) {
  map([]<class T>(T v, T shift, T log, T g) { return g * Math::exp((v - shift) - log); }, dx, x, top, log_sum, dy);
}

void var_forward(View y, View mean, View x, double correction) {
  const ReducePlan plan(y, x);
  const double n = double(plan.n_reduced);
  in_compute_type(y, [&]<class C>(C* out) {
    // The mean as distance from the first element: exact if all are equal, and no sum of large numbers.
    std::vector<C> center(size_t(y.size())), buffer(center);
    const C* const first =
        plan.n_out && plan.n_reduced ? plan.outputs.load(0, plan.n_out, buffer.data()) : buffer.data();
    reduce<SumDistance, C>(plan, center.data(), first, [n](double total, C p) { return C(double(p) + total / n); });
    reduce<SumSquaredDistance, C>(plan, out, center.data(),
                                  [&](double total, C) { return C(total / std::max(0.0, n - correction)); });
    if (mean.size() > 0) operands_of(std::array<View, 1>{mean})[0].store(0, mean.size(), center.data());
  });
}

void var_backward(View dx, View x, View mean, View dy, double scale) {
  map([scale]<class T>(T v, T m, T g) { return g * T(scale) * (v - m); }, dx, x, mean, dy);
}

RT_ISA_END
