#include "kernels/layer_norm.h"

#include "kernels/cuda/norm_sums.cuh"
#include "kernels/cuda/rows.cuh"

namespace ringtape::cuda {
namespace {

template <class C> struct LayerStatistics {
  const C* of;
  __device__ C operator()(int64_t, int64_t row, int64_t, C x) const {
    const C* const s = of + 3 * row;
    return ((x - s[0]) - s[1]) * s[2];
  }
};

template <class T> struct LayerNormForward {
  using Element = T;
  using C = compute_t<T>;
  const T* in[1];
  T* y;
  C* statistics;
  const C *w, *b;
  C eps;
  bool centred;
  template <class R> __device__ void operator()(R& row) const {
    const C n = C(row.columns());
    // Distances from the first element: exact if all are equal, and no sum of large numbers.
    const C high = centred && row.exists() ? C(in[0][row.index() * row.columns()]) : C(0);
    const C low = centred ? row.template reduce<Sum>([=](int64_t, C x) { return x - high; }) / n : C(0);
    const C squares = row.template reduce<Sum>([=](int64_t, C x) { return ((x - high) - low) * ((x - high) - low); });
    const C inverse = 1 / Math::sqrt(squares / n + eps);
    if (row.exists() && row.writes()) {
      C* const s = statistics + 3 * row.index();
      s[0] = high, s[1] = low, s[2] = inverse;
    }
    row.write(y, [=, w = w, b = b](int64_t c, C x) {
      const C u = ((x - high) - low) * inverse;
      return (w ? u * w[c] : u) + (b ? b[c] : C(0));
    });
  }
};

template <class T> struct LayerNormBackward {
  using Element = T;
  using C = compute_t<T>;
  const T* in[2];
  T* dx;
  LayerStatistics<C> statistics;
  const C* w;
  bool centred;
  template <class R> __device__ void operator()(R& row) const {
    const int64_t r = row.exists() ? row.index() : 0;
    const C n = C(row.columns()), inverse = statistics.of[3 * r + 2];
    const auto scaled = [w = w](int64_t c, C dy) { return w ? dy * w[c] : dy; };
    const auto normalised = [s = statistics, r](C x) { return s(0, r, 0, x); };
    const C shift = centred ? row.template reduce<Sum>([=](int64_t c, C dy, C) { return scaled(c, dy); }) / n : C(0);
    const C slope = row.template reduce<Sum>([=](int64_t c, C dy, C x) { return scaled(c, dy) * normalised(x); }) / n;
    row.write(dx, [=](int64_t c, C dy, C x) { return inverse * (scaled(c, dy) - shift - normalised(x) * slope); });
  }
};

}  // namespace

void layer_norm_forward(View y, View statistics, View x, View w, View b, double eps, bool centred) {
  dispatch_float(x.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const LayerNormForward<T> f{{x.as<T>()}, y.as<T>(), statistics.as<C>(), w.as<const C>(), b.as<const C>(),
                                C(eps),      centred};
    for_each_row(x.device, f, y.as<T>(), rows_of(x), columns_of(x));
  });
}

void layer_norm_backward(View dx, View dw, View db, View dy, View x, View statistics, View w, bool centred) {
  if (columns_of(x) == 0) return;
  dispatch_float(x.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const LayerStatistics<C> s{statistics.as<const C>()};
    const LayerNormBackward<T> f{{dy.as<T>(), x.as<T>()}, dx.as<T>(), s, w.as<const C>(), centred};
    for_each_row(x.device, f, dx.as<T>(), rows_of(x), columns_of(x));
    if (dw.data || db.data) add_norm_sums(dw, db, partial_norm_sums<T>(dy, x, s, 1, rows_of(x), columns_of(x)));
  });
}

}  // namespace ringtape::cuda
