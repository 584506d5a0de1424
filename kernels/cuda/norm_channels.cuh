#pragma once
#include "kernels/batch_norm.h"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/reducers.cuh"

// Values per channel of batch normalisation: how they are used, and how they are finished.
namespace ringtape::cuda {
namespace {

template <class C> __device__ C inverse_deviation(const C* var, int64_t c, C eps) {
  return 1 / Math::sqrt(var[c] + eps);
}

// The values per channel, including w / sqrt(var + eps).
template <class C> struct Channels {
  const C *mean, *var, *w;
  C eps;
  Channels(const View& m, const View& v, const View& weight, double e)
      : mean(m.as<C>()), var(v.as<C>()), w(weight.as<C>()), eps(C(e)) {}
  __device__ C inverse(int64_t c) const { return inverse_deviation(var, c, eps); }
  __device__ Channels from(int64_t first) const {  // those of a part
    Channels out = *this;
    out.mean += first, out.var += first;
    return out;
  }
};

// Of one channel: y = (x - mean) scale + shift.
template <class C> struct Normalize {
  C mean, scale, shift;
  static __device__ Normalize of(const Channels<C>& by, const C* b, int64_t c) {
    return {by.mean[c], by.w[c] * by.inverse(c), b[c]};
  }
  __device__ C operator()(C x) const { return (x - mean) * scale + shift; }
};

// Of one channel: dx = scale (dz - shift - slope (x - mean)), where share is 1 / the number of rows.
template <class C> struct NormalizeGradient {
  C mean, scale, shift, slope;
  static __device__ NormalizeGradient of(const Channels<C>& by, const C* db, const C* dw, C share, int64_t c) {
    const C inverse = by.inverse(c);
    return {by.mean[c], by.w[c] * inverse, db ? db[c] * share : C(0), dw ? dw[c] * share * inverse : C(0)};
  }
  __device__ C operator()(C dz, C x) const { return scale * (dz - shift - slope * (x - mean)); }
};

template <class C> struct Running {
  C *mean, *var;
  int64_t* batches;
  C momentum, correction;
  explicit Running(const RunningUpdate& to)
      : mean(to.mean.as<C>()), var(to.var.as<C>()), batches(to.batches.as<int64_t>()), momentum(C(to.momentum)),
        correction(C(to.correction)) {}
  __device__ void add(int64_t c, C of_mean, C of_var) const {
    if (!mean) return;
    mean[c] = (1 - momentum) * mean[c] + momentum * of_mean;
    var[c] = (1 - momentum) * var[c] + momentum * (of_var * correction);
    if (c == 0) ++*batches;
  }
};

template <class T> struct Statistics : Moments<T> {
  using typename Moments<T>::C, typename Moments<T>::Acc;
  void *mean, *var;
  bool wide;  // whether they are f64
  Running<C> running;
  Statistics(const View& m, const View& v, const RunningUpdate& to)
      : mean(m.data), var(v.data), wide(m.dtype == DType::f64), running(to) {}
  __device__ void finish(int64_t o, const Acc& all) const {
    const C of_var = all.n > 0 ? all.squares / all.n : C(0);
    put(mean, o, all.mean);
    put(var, o, of_var);
    running.add(o, all.mean, of_var);
  }
  __device__ void put(void* to, int64_t o, C value) const {
    if (wide) static_cast<double*>(to)[o] = value;
    else static_cast<C*>(to)[o] = value;
  }
};

}  // namespace
}  // namespace ringtape::cuda
