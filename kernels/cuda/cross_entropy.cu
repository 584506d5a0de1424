#include "kernels/cross_entropy.h"

#include <algorithm>

#include "core/tensor.h"
#include "kernels/cuda/softmax.cuh"

namespace ringtape::cuda {
namespace {

// Labels and weights of classes. A label that is none has weight 1.
template <class C> struct Classes {
  const int64_t* labels;
  const C* weights;
  int64_t ignored, count;

  __device__ bool counts(int64_t row) const { return labels[row] != ignored; }
  __device__ bool known(int64_t row) const { return labels[row] >= 0 && labels[row] < count; }
  // The label's element of a row, or NaN.
  template <class T> __device__ C element(const T* x, int64_t row) const {
    return known(row) ? C(x[row * count + labels[row]]) : std::numeric_limits<C>::quiet_NaN();
  }
  __device__ C weight(int64_t c) const { return weights ? weights[c] : C(1); }
  __device__ C weight_of(int64_t row) const { return !counts(row) ? C(0) : known(row) ? weight(labels[row]) : C(1); }
};

template <class C>
Classes<C> classes_of(const View& logits, const View& labels, const View& weights, const CrossEntropyRule& rule) {
  return {labels.as<const int64_t>(), weights.as<const C>(), rule.ignored, columns_of(logits)};
}

// dloss (f32 or f64, for any dtype of the logits), times the factors of a rule.
struct LossGradient {
  View dloss, total;
  double scale;
  static __device__ double number(const View& v, int64_t i) {
    const float* narrow = static_cast<const float*>(v.data);
    return v.dtype == DType::f64 ? static_cast<const double*>(v.data)[i] : double(narrow[i]);
  }
  template <class C> __device__ C at(int64_t row) const {
    const C own = C(number(dloss, row * dloss.strides[0])) * C(scale);
    return total.data ? own * (1 / C(number(total, 0))) : own;
  }
};

LossGradient loss_gradient(const char* op, const View& dloss, const View& total, double scale) {
  RT_CHECK_AS(DTypeError, dloss.dtype >= DType::f32, op, ": dloss is ", dloss.dtype, ", not f32 or f64");
  return {dloss, total, scale};
}

template <class T> struct CrossEntropyForward {
  using Element = T;
  using C = compute_t<T>;
  const T* in[1];
  C *loss, *norms;
  Classes<C> classes;
  C smoothing;
  int64_t rows;
  template <class R> __device__ void operator()(R& row) const {
    const auto [top, sum] = exp_sum<T>(row);
    // Distances from the maximum are halved, which is exact, because they may be twice the largest number.
    const C half_top = top / 2, share = smoothing / C(row.columns());
    C spread = 0, all = 1;  // of all classes: the sum of losses, without log(sum), and of weights
    if (smoothing != 0) {
      spread = row.template reduce<Sum>(
          [=, k = classes](int64_t c, C x) { return 2 * share * k.weight(c) * (x / 2 - half_top); });
      if (classes.weights) all = share * row.template reduce<Sum>([k = classes](int64_t c, C) { return k.weight(c); });
      else all = smoothing;
    }
    if (!row.exists() || !row.writes()) return;
    const int64_t r = row.index();
    const C own = classes.weight_of(r), on = (1 - smoothing) * own, mass = smoothing == 0 ? own : on + all;
    norms[2 * r] = top, norms[2 * r + 1] = sum;
    loss[rows + r] = own;
    if (!classes.counts(r)) {
      loss[r] = 0;
      return;
    }
    loss[r] = mass * Math::log(sum) - 2 * on * (classes.element(in[0], r) / 2 - half_top) - spread;
  }
};

template <class T> struct CrossEntropyBackward {
  using Element = T;
  using C = compute_t<T>;
  const T* in[1];
  T* dlogits;
  const C* norms;
  Classes<C> classes;
  LossGradient gradient;
  C smoothing;
  template <class R> __device__ void operator()(R& row) const {
    const int64_t r = row.exists() ? row.index() : 0, label = classes.labels[r];
    const bool counts = classes.counts(r);
    const C off = smoothing / C(row.columns());
    C all = smoothing;
    if (smoothing != 0 && classes.weights)
      all = off * row.template reduce<Sum>([k = classes](int64_t c, C) { return k.weight(c); });
    const C g = counts ? gradient.at<C>(r) : C(0), top = norms[2 * r];  // after the reduction: no registers spill
    const C on = (1 - smoothing) * classes.weight_of(r), scale = (on + all) / norms[2 * r + 1];
    row.write(dlogits, [=, k = classes](int64_t c, C x) {
      return counts ? g * (exp_of<T>(x - top) * scale - off * k.weight(c) - (c == label ? on : C(0))) : C(0);
    });
  }
};

// The target's mass of a class, from its probability q.
template <class C> struct SoftTarget {
  const C* weights;
  C on, off;
  __device__ C weight(int64_t c) const { return weights ? weights[c] : C(1); }
  __device__ C operator()(int64_t c, C q) const { return (on * q + off) * weight(c); }
};

template <class C> SoftTarget<C> soft_target(const View& logits, const View& weights, const CrossEntropyRule& rule) {
  return {weights.as<const C>(), C(1 - rule.smoothing), C(rule.smoothing / double(columns_of(logits)))};
}

template <class T> struct SoftCrossEntropyForward {
  using Element = T;
  using C = compute_t<T>;
  const T* in[2];
  C *loss, *norms;
  SoftTarget<C> mass;
  template <class R> __device__ void operator()(R& row) const {
    const C top = row.template reduce<Max>([](int64_t, C x, C) { return x; });
    const C sum = row.template reduce<Sum>([top](int64_t, C x, C) { return exp_of<T>(x - top); });
    const C log_sum = Math::log(sum);
    // Where the target is 0, a logit of -infinity gives no loss.
    const C all = row.template reduce<Sum>([=, mass = mass](int64_t c, C x, C q) {
      const C part = mass(c, q);
      return part == 0 ? C(0) : part * (log_sum - (x - top));
    });
    if (!row.exists() || !row.writes()) return;
    norms[2 * row.index()] = top, norms[2 * row.index() + 1] = sum;
    loss[row.index()] = all;
  }
};

template <class T> struct SoftCrossEntropyBackward {
  using Element = T;
  using C = compute_t<T>;
  const T* in[2];
  T *dlogits, *dtargets;
  const C* norms;
  SoftTarget<C> mass;
  LossGradient gradient;
  template <class R> __device__ void operator()(R& row) const {
    const int64_t r = row.exists() ? row.index() : 0;
    const C g = gradient.at<C>(r), top = norms[2 * r], sum = norms[2 * r + 1];
    const C scale = row.template reduce<Sum>([mass = mass](int64_t c, C, C q) { return mass(c, q); }) / sum;
    row.write(dlogits, [=, mass = mass](int64_t c, C x, C q) { return g * (exp_of<T>(x - top) * scale - mass(c, q)); });
    const C log_sum = Math::log(sum);
    if (dtargets)
      row.write(dtargets,
                [=, mass = mass](int64_t c, C x, C) { return g * mass.on * mass.weight(c) * (log_sum - (x - top)); });
  }
};

template <class T>
__global__ void nll_losses(compute_t<T>* loss, const T* log_p, Classes<compute_t<T>> classes, int64_t rows) {
  using C = compute_t<T>;
  for (int64_t r = thread_in_grid(); r < rows; r += threads_in_grid()) {
    const C own = classes.weight_of(r);
    loss[r] = classes.counts(r) ? -own * classes.element(log_p, r) : C(0);
    loss[rows + r] = own;
  }
}

template <class T>
__global__ void nll_gradients(T* dlog_p, Classes<compute_t<T>> classes, LossGradient gradient, int64_t size) {
  using C = compute_t<T>;
  for (int64_t i = thread_in_grid(); i < size; i += threads_in_grid()) {
    const int64_t r = i / classes.count, label = classes.labels[r];
    const bool own = label == i - r * classes.count && classes.counts(r);
    dlog_p[i] = T(own ? -gradient.at<C>(r) * classes.weight(label) : C(0));
  }
}

template <class C> struct LossAndShare { C loss, share; };
struct AddLosses {
  template <class A> static __device__ A identity() { return {0, 0}; }
  template <class A> static __device__ A combine(const A& a, const A& b) {
    return {a.loss + b.loss, a.share + b.share};
  }
};

constexpr int kMeanThreads = 512;

// Sums of a block's part of loss (2, n): to (2, blocks), or of the last kernel, of one block, the mean and its divisor.
template <class C>
__global__ void __launch_bounds__(kMeanThreads) add_weighted(C* to, const C* loss, int64_t n, bool last) {
  LossAndShare<C> all{0, 0};
  for (int64_t i = thread_in_grid(); i < n; i += threads_in_grid())
    all = AddLosses::combine(all, LossAndShare<C>{loss[i], loss[n + i]});
  all = block_reduce<AddLosses>(all);
  if (threadIdx.x > 0) return;
  to[blockIdx.x] = last ? all.loss / all.share : all.loss;
  to[gridDim.x + blockIdx.x] = all.share;
}

}  // namespace

void cross_entropy_forward(View loss, View norms, View logits, View labels, View weights, CrossEntropyRule rule) {
  dispatch_float(logits.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const CrossEntropyForward<T> f{{logits.as<T>()},  loss.as<C>(),
                                   norms.as<C>(),     classes_of<C>(logits, labels, weights, rule),
                                   C(rule.smoothing), logits.dims[0]};
    for_each_row(logits.device, f, nullptr, logits.dims[0], logits.dims[1]);
  });
}

void cross_entropy_backward(View dlogits, View logits, View norms, View labels, View weights, View dloss, View total,
                            CrossEntropyRule rule) {
  const LossGradient gradient = loss_gradient("cross_entropy", dloss, total, rule.scale);
  dispatch_float(logits.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const CrossEntropyBackward<T> f{
        {logits.as<T>()}, dlogits.as<T>(),  norms.as<const C>(), classes_of<C>(logits, labels, weights, rule),
        gradient,         C(rule.smoothing)};
    for_each_row(logits.device, f, dlogits.as<T>(), rows_of(logits), columns_of(logits));
  });
}

void soft_cross_entropy_forward(View loss, View norms, View logits, View targets, View weights, CrossEntropyRule rule) {
  dispatch_float(logits.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const SoftCrossEntropyForward<T> f{
        {logits.as<T>(), targets.as<T>()}, loss.as<C>(), norms.as<C>(), soft_target<C>(logits, weights, rule)};
    for_each_row(logits.device, f, nullptr, logits.dims[0], logits.dims[1]);
  });
}

void soft_cross_entropy_backward(View dlogits, View dtargets, View logits, View norms, View targets, View weights,
                                 View dloss, CrossEntropyRule rule) {
  const LossGradient gradient = loss_gradient("cross_entropy", dloss, {}, rule.scale);
  dispatch_float(logits.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const SoftCrossEntropyBackward<T> f{
        {logits.as<T>(), targets.as<T>()},     dlogits.as<T>(), dtargets.as<T>(), norms.as<const C>(),
        soft_target<C>(logits, weights, rule), gradient};
    for_each_row(logits.device, f, dlogits.as<T>(), rows_of(logits), columns_of(logits));
  });
}

void nll_forward(View loss, View log_p, View labels, View weights, CrossEntropyRule rule) {
  dispatch_float(log_p.dtype, [&]<class T>() {
    using C = compute_t<T>;
    launch<nll_losses<T>>(log_p.device, covering(log_p.device, log_p.dims[0]), loss.as<C>(), log_p.as<const T>(),
                          classes_of<C>(log_p, labels, weights, rule), log_p.dims[0]);
  });
}

void nll_backward(View dlog_p, View labels, View weights, View dloss, View total, CrossEntropyRule rule) {
  const LossGradient gradient = loss_gradient("nll_loss", dloss, total, rule.scale);
  dispatch_float(dlog_p.dtype, [&]<class T>() {
    using C = compute_t<T>;
    launch<nll_gradients<T>>(dlog_p.device, covering(dlog_p.device, dlog_p.size()), dlog_p.as<T>(),
                             classes_of<C>(dlog_p, labels, weights, rule), gradient, dlog_p.size());
  });
}

void weighted_mean(View y, View loss) {
  const int64_t n = loss.dims[1];
  dispatch_float(y.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const int64_t blocks = std::clamp<int64_t>(divide_up(n, 8 * kMeanThreads), 1, kMeanThreads);
    const auto add = [&](int64_t many, C* to, const C* from, int64_t count, bool last) {
      launch<add_weighted<C>>(y.device, Grid{dim3(unsigned(many)), dim3(kMeanThreads)}, to, from, count, last);
    };
    if (blocks == 1) return add(1, y.as<C>(), loss.as<const C>(), n, true);
    const Tensor partial({2, blocks}, y.dtype, y.device);
    add(blocks, View(partial).as<C>(), loss.as<const C>(), n, false);
    add(1, y.as<C>(), View(partial).as<const C>(), blocks, true);
  });
}

}  // namespace ringtape::cuda
