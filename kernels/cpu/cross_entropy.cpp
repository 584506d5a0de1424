#include "kernels/cross_entropy.h"

#include "kernels/cpu/vector/math.h"
#include "kernels/cpu/vector/rows.h"
#include "kernels/reduce.h"

RT_ISA_BEGIN

namespace {

// The label of each sample, or -1 where it is ignored.
struct Labels {
  const int64_t* of;
  int64_t ignored;
  int64_t operator[](int64_t r) const { return of[r] == ignored ? -1 : of[r]; }
};

Labels checked_labels(const char* op, const View& labels, int64_t rows, int64_t classes, int64_t ignored) {
  const int64_t* const label = labels.as<int64_t>();
  for (int64_t r = 0; r < rows; ++r)
    RT_CHECK_AS(UsageError, (label[r] >= 0 && label[r] < classes) || label[r] == ignored, op, ": label ", label[r],
                " of sample ", r, " with ", classes, " classes");
  return {label, ignored};
}

// A loss's gradient, f32 or f64, times the factors of the rule.
struct LossGradient {
  View dloss;
  double factor;
  LossGradient(const View& d, const View& total, double scale) : dloss(d), factor(scale) {
    if (total.data) factor /= dloss.dtype == DType::f64 ? *total.as<double>() : double(*total.as<float>());
  }
  template <class C> C at(int64_t r) const {
    const int64_t i = r * dloss.strides[0];
    return (dloss.dtype == DType::f64 ? C(dloss.as<double>()[i]) : C(dloss.as<float>()[i])) * C(factor);
  }
};

template <class C> struct Norms { C top, sum; };  // of a row: the largest number, the sum of exp(x - top)
template <class C> Norms<C> norms_of(const C* x, int64_t n) {
  const C top = row_max(x, n);
  return {top, row_sum<C>(n, [x, top](int64_t i) { return Math::exp(x[i] - top); })};
}

double weight_sum(const View& weights) {
  const auto sum = [n = weights.dims[0]]<class C>(const C* w) {
    return double(row_sum<C>(n, [w](int64_t i) { return w[i]; }));
  };
  if (!weights.data) return 0;
  return weights.dtype == DType::f64 ? sum(weights.as<double>()) : sum(weights.as<float>());
}

}  // namespace

void cross_entropy_forward(View loss, View norms, View logits, View labels, View weights, CrossEntropyRule rule) {
  const int64_t rows = logits.dims[0], n = logits.dims[1];
  const Labels label = checked_labels("cross_entropy", labels, rows, n, rule.ignored);
  const double all = weight_sum(weights);
  for_each_row(
      {},
      [&]<class C>(C*, const C* x, int64_t, int64_t r) {
        const C *const w = weights.as<C>(), s = C(rule.smoothing);
        C *const out = loss.as<C>(), *const kept = norms.as<C>();
        const auto [top, sum] = norms_of(x, n);
        kept[2 * r] = top, kept[2 * r + 1] = sum;
        const int64_t at = label[r];
        const C own = at < 0 ? C(0) : w ? w[at] : C(1);
        out[rows + r] = own, out[r] = 0;
        if (at < 0) return;
        // Distances from the top are halved, which is exact, as they may be twice the largest number.
        const C half_top = top / 2, share = 2 * s / C(n), log_sum = Math::log(sum);
        C spread = 0;
        if (s != 0 && w) spread = row_sum<C>(n, [=](int64_t i) { return share * w[i] * (x[i] / 2 - half_top); });
        else if (s != 0) spread = row_sum<C>(n, [=](int64_t i) { return share * (x[i] / 2 - half_top); });
        const C base = w ? ((1 - s) * own + s / C(n) * C(all)) * log_sum : log_sum;
        out[r] = base - 2 * (1 - s) * own * (x[at] / 2 - half_top) - spread;
      },
      logits);
}

void cross_entropy_backward(View dlogits, View logits, View norms, View labels, View weights, View dloss, View total,
                            CrossEntropyRule rule) {
  const LossGradient gradient(dloss, total, rule.scale);
  const Labels label{labels.as<int64_t>(), rule.ignored};
  const double all = weight_sum(weights);
  for_each_row(
      dlogits,
      [&]<class C>(C* d, const C* x, int64_t n, int64_t r) {
        const int64_t at = label[r];
        if (at < 0) {
          std::fill_n(d, n, C(0));
          return;
        }
        const C g = gradient.at<C>(r), s = C(rule.smoothing), off = s / C(n);
        const C top = norms.as<C>()[2 * r], sum = norms.as<C>()[2 * r + 1];
        const C* const w = weights.as<C>();
        if (!w) {
          const C inverse = 1 / sum;
          for (int64_t i = 0; i < n; ++i) d[i] = g * (Math::exp(x[i] - top) * inverse - off);
          d[at] -= g * (1 - s);
          return;
        }
        const C own = (1 - s) * w[at], inverse = (own + off * C(all)) / sum;
        for (int64_t i = 0; i < n; ++i) d[i] = g * (Math::exp(x[i] - top) * inverse - off * w[i]);
        d[at] -= g * own;
      },
      logits);
}

void soft_cross_entropy_forward(View loss, View norms, View logits, View targets, View weights, CrossEntropyRule rule) {
  for_each_row(
      {},
      [&]<class C>(C*, const C* x, const C* q, int64_t n, int64_t r) {
        const C *const w = weights.as<C>(), off = C(rule.smoothing) / C(n), on = 1 - C(rule.smoothing);
        const auto [top, sum] = norms_of(x, n);
        norms.as<C>()[2 * r] = top, norms.as<C>()[2 * r + 1] = sum;
        const C log_sum = Math::log(sum), highest = top;
        // Where the target or the weight is 0, a logit of -infinity gives no loss.
        const auto term = [=](int64_t i) {
          const C mass = (on * q[i] + off) * (w ? w[i] : C(1));
          return mass == 0 ? C(0) : mass * (log_sum - (x[i] - highest));
        };
        loss.as<C>()[r] = row_sum<C>(n, term);
      },
      logits, targets);
}

void soft_cross_entropy_backward(View dlogits, View dtargets, View logits, View norms, View targets, View weights,
                                 View dloss, CrossEntropyRule rule) {
  const LossGradient gradient(dloss, {}, rule.scale);
  for_each_row(
      dlogits,
      [&]<class C>(C* d, const C* x, const C* q, int64_t n, int64_t r) {
        const C g = gradient.at<C>(r), off = C(rule.smoothing) / C(n), on = 1 - C(rule.smoothing);
        const C top = norms.as<C>()[2 * r], sum = norms.as<C>()[2 * r + 1];
        const C* const w = weights.as<C>();
        const auto mass = [=](int64_t i) { return (on * q[i] + off) * (w ? w[i] : C(1)); };
        const C scale = row_sum<C>(n, mass) / sum;
        for (int64_t i = 0; i < n; ++i) d[i] = g * (Math::exp(x[i] - top) * scale - mass(i));
      },
      logits, targets);
  if (!dtargets.data) return;
  for_each_row(
      dtargets,
      [&]<class C>(C* d, const C* x, int64_t n, int64_t r) {
        const C top = norms.as<C>()[2 * r], log_sum = Math::log(norms.as<C>()[2 * r + 1]);
        const C g = gradient.at<C>(r) * (1 - C(rule.smoothing));
        const C* const w = weights.as<C>();
        for (int64_t i = 0; i < n; ++i) d[i] = g * (w ? w[i] : C(1)) * (log_sum - (x[i] - top));
      },
      logits);
}

void nll_forward(View loss, View log_p, View labels, View weights, CrossEntropyRule rule) {
  const int64_t rows = log_p.dims[0], n = log_p.dims[1];
  const Labels label = checked_labels("nll_loss", labels, rows, n, rule.ignored);
  dispatch_float(log_p.dtype, [&]<class T>() {
    using C = compute_t<T>;
    parallel_for(rows, kGrain / 16, [&](int64_t begin, int64_t end) {  // each row is a miss of the cache
      for (int64_t r = begin; r < end; ++r) {
        const int64_t at = label[r];
        const C own = at < 0 ? C(0) : weights.data ? weights.as<C>()[at] : C(1);
        loss.as<C>()[r] = at < 0 ? C(0) : -own * C(log_p.as<T>()[r * n + at]);
        loss.as<C>()[rows + r] = own;
      }
    });
  });
}

void nll_backward(View dlog_p, View labels, View weights, View dloss, View total, CrossEntropyRule rule) {
  const LossGradient gradient(dloss, total, rule.scale);
  const Labels label{labels.as<int64_t>(), rule.ignored};
  const int64_t rows = dlog_p.dims[0], n = dlog_p.dims[1];
  dispatch_float(dlog_p.dtype, [&]<class T>() {
    using C = compute_t<T>;
    parallel_for(rows, std::max<int64_t>(1, kGrain / std::max<int64_t>(n, 1)), [&](int64_t begin, int64_t end) {
      std::fill(dlog_p.as<T>() + begin * n, dlog_p.as<T>() + end * n, T(C(0)));
      for (int64_t r = begin; r < end; ++r)
        if (const int64_t at = label[r]; at >= 0)
          dlog_p.as<T>()[r * n + at] = T(-gradient.at<C>(r) * (weights.data ? weights.as<C>()[at] : C(1)));
    });
  });
}

void weighted_mean(View y, View loss) {
  const int64_t n = loss.dims[1];
  const auto part = [](View v, int64_t begin, int64_t size) {
    v.data = v.as<char>() + begin * int64_t(size_of(v.dtype));
    v.rank = 1, v.dims[0] = size, v.strides[0] = 1;
    return v;
  };
  sum_forward(part(y, 1, 1), part(loss, n, n));
  const auto divide = [&]<class C>(C* to) {
    if (to[1] == C(n)) return mean_forward(part(y, 0, 1), part(loss, 0, n));  // one rounding
    sum_forward(part(y, 0, 1), part(loss, 0, n));
    to[0] /= to[1];
  };
  y.dtype == DType::f64 ? divide(y.as<double>()) : divide(y.as<float>());
}

RT_ISA_END
