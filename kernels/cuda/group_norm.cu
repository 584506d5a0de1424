#include "kernels/group_norm.h"

#include "kernels/cuda/norm_sums.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/reducers.cuh"
#include "kernels/cuda/rows.cuh"

namespace ringtape::cuda {
namespace {

// Where element i of (N, M, C) lies.
struct GroupShape {
  int64_t rows, channels, groups, in_group, size;  // size: all elements

  GroupShape(const View& x, const View& statistics)
      : rows(x.dims[1]), channels(x.dims[2]), groups(statistics.dims[1]), in_group(channels / groups), size(x.size()) {}
  __device__ int64_t channel(int64_t i) const { return i - Axes::quotient(i, channels) * channels; }
  __device__ int64_t sample(int64_t i) const { return Axes::quotient(i, rows * channels); }
  __device__ int64_t group(int64_t sample, int64_t channel) const {
    return sample * groups + Axes::quotient(channel, in_group);
  }
  // x (N, M, G, C / G), or one number for each group.
  View split(View x, bool one) const {
    const int64_t n = size / (rows * channels);
    x.rank = 4;
    const int64_t whole[] = {n, rows, groups, in_group}, steps[] = {rows * channels, channels, in_group, 1};
    for (int d = 0; d < 4; ++d) x.dims[d] = one && d % 2 == 1 ? 1 : whole[d], x.strides[d] = steps[d];
    return x;
  }
};

template <class T> struct GroupMoments : Moments<T> {
  using typename Moments<T>::C, typename Moments<T>::Acc;
  C *statistics, eps;
  GroupMoments(C* to, C e) : statistics(to), eps(e) {}
  __device__ void finish(int64_t o, const Acc& all) const {
    statistics[2 * o] = all.mean;
    statistics[2 * o + 1] = 1 / Math::sqrt(all.squares / all.n + eps);
  }
};

template <class C> struct GroupStatistics {
  const C* of;
  GroupShape shape;
  __device__ C operator()(int64_t n, int64_t, int64_t c, C x) const {
    const C* const s = of + 2 * shape.group(n, c);
    return (x - s[0]) * s[1];
  }
};

// Calls f(first element, its sample and channel) for packs of kWidth neighbouring channels of a row.
template <int kWidth, class F> __device__ void for_each_group_pack(const GroupShape& shape, const F& f) {
  for (int64_t i = thread_in_grid() * kWidth; i < shape.size; i += threads_in_grid() * kWidth)
    f(i, shape.sample(i), shape.channel(i));
}

template <class T, int kWidth>
__global__ void __launch_bounds__(256)
    group_norm_apply(T* y, const T* x, GroupStatistics<compute_t<T>> s, const compute_t<T>* w, const compute_t<T>* b) {
  using C = compute_t<T>;
  for_each_group_pack<kWidth>(s.shape, [&](int64_t i, int64_t n, int64_t c) {
    const Vec<T, kWidth> of_x = load<kWidth>(x + i);
    Vec<T, kWidth> out;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const C u = s(n, 0, c + j, C(of_x.x[j]));
      out.x[j] = T((w ? u * w[c + j] : u) + (b ? b[c + j] : C(0)));
    }
    store(y + i, out);
  });
}

// terms (N, 2, G): the means of dy w and of dy w u over a group.
template <class T, int kWidth>
__global__ void __launch_bounds__(256)
    group_norm_gradient(T* dx, const T* dy, const T* x, GroupStatistics<compute_t<T>> s, const compute_t<T>* w,
                        const compute_t<T>* terms) {
  using C = compute_t<T>;
  for_each_group_pack<kWidth>(s.shape, [&](int64_t i, int64_t n, int64_t c) {
    const Vec<T, kWidth> of_dy = load<kWidth>(dy + i), of_x = load<kWidth>(x + i);
    Vec<T, kWidth> out;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const int64_t group = s.shape.group(n, c + j);
      const C* const term = terms + n * s.shape.groups + group;
      const C g = w ? C(of_dy.x[j]) * w[c + j] : C(of_dy.x[j]), u = s(n, 0, c + j, C(of_x.x[j]));
      out.x[j] = T(s.of[2 * group + 1] * (g - term[0] - u * term[s.shape.groups]));
    }
    store(dx + i, out);
  });
}

// out (N, 2, G) = the sums of w times sums (N, 2, C) over the channels of a group, divided by `count`.
template <class C> struct GroupTerms {
  using Element = C;
  const C* in[1];
  C* out;
  const C* w;
  int64_t groups;
  C count;
  template <class R> __device__ void operator()(R& row) const {
    const int64_t first = row.index() % groups * row.columns();
    const C* const scale = w ? w + first : nullptr;
    const C sum = row.template reduce<Sum>([=](int64_t c, C x) { return scale ? x * scale[c] : x; });
    if (row.exists() && row.writes()) out[row.index()] = sum / count;
  }
};

template <class T, class F, class... X> void by_group_width(int64_t channels, const F& f, const X*... x) {
  constexpr int wide = sizeof(T) == 8 ? 1 : int(16 / sizeof(T));
  channels % wide == 0 && aligned_width(wide, x...) == wide ? f.template operator()<wide>()
                                                            : f.template operator()<1>();
}

}  // namespace

void group_norm_forward(View y, View statistics, View x, View w, View b, double eps) {
  if (x.size() == 0) return;
  const GroupShape shape(x, statistics);
  dispatch_float(x.dtype, [&]<class T>() {
    using C = compute_t<T>;
    reduce<T>(GroupMoments<T>(statistics.as<C>(), C(eps)), shape.split(x, true), shape.split(x, false));
    const GroupStatistics<C> s{statistics.as<const C>(), shape};
    by_group_width<T>(
        shape.channels,
        [&]<int kWidth>() {
          launch<group_norm_apply<T, kWidth>>(x.device, covering(x.device, divide_up(shape.size, kWidth)), y.as<T>(),
                                              x.as<const T>(), s, w.as<const C>(), b.as<const C>());
        },
        y.as<T>(), x.as<T>());
  });
}

void group_norm_backward(View dx, View dw, View db, View dy, View x, View statistics, View w) {
  const int64_t samples = x.dims[0], rows = x.dims[1], channels = x.dims[2];
  if (channels == 0) return;
  dispatch_float(x.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const DType dtype = dtype_of<C>::value;
    const GroupShape shape(x, statistics);
    const GroupStatistics<C> s{statistics.as<const C>(), shape};
    const Tensor partial = partial_norm_sums<T>(dy, x, s, samples, rows, channels);
    add_norm_sums(dw, db, partial);
    if (shape.size == 0) return;
    Tensor sums = partial;
    if (partial.dim(1) > 1) {
      sums = Tensor({samples, 1, 2, channels}, dtype, x.device);
      sum_forward(sums, partial);
    }
    const Tensor terms({samples, 2, shape.groups}, dtype, x.device);
    const GroupTerms<C> f{
        {View(sums).as<const C>()}, View(terms).as<C>(), w.as<const C>(), shape.groups, C(rows * shape.in_group)};
    for_each_row(x.device, f, static_cast<const C*>(nullptr), samples * 2 * shape.groups, shape.in_group);
    by_group_width<T>(
        channels,
        [&]<int kWidth>() {
          launch<group_norm_gradient<T, kWidth>>(x.device, covering(x.device, divide_up(shape.size, kWidth)),
                                                 dx.as<T>(), dy.as<const T>(), x.as<const T>(), s, w.as<const C>(),
                                                 View(terms).as<const C>());
        },
        dx.as<T>(), dy.as<T>(), x.as<T>());
  });
}

}  // namespace ringtape::cuda
