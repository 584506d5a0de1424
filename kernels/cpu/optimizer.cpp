#include "kernels/optimizer.h"

#include <cmath>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/vector/flush_denormals.h"
#include "kernels/cpu/vector/isa.h"
#include "kernels/cpu/vector/rows.h"

RT_ISA_BEGIN

namespace {

// The factor of the gradients.
double value_of(const View& factor) { return factor.data ? double(factor.as<float>()[0]) : 1; }

void check_parameters(const View& w, const char* name) {
  RT_CHECK_AS(DTypeError, w.dtype == DType::f32 || w.dtype == DType::f64, name, ": parameters are f32 or f64, got ",
              w.dtype);
}

// Calls f(begin, end) over parts of the buffers, with the C++ type of the parameters.
template <class F> void for_each_part(const View& w, const char* name, const F& f) {
  check_parameters(w, name);
  parallel_for(w.size(), kGrain, [&](int64_t begin, int64_t end) {
    [[maybe_unused]] const FlushDenormals flush;
    if (w.dtype == DType::f32) f.template operator()<float>(begin, end);
    else f.template operator()<double>(begin, end);
  });
}

// The loops take scalars by value. Otherwise the compiler must assume that a store to w changes a captured scalar, and
// does not vectorise the loop.

template <class T> void sgd(T* w, const T* g, int64_t n, T factor, T lr, T decay) {
  RT_IVDEP
  for (int64_t i = 0; i < n; ++i) w[i] -= lr * (factor * g[i] + decay * w[i]);
}

template <class T>
void sgd_momentum(T* w, T* v, const T* g, int64_t n, T factor, T lr, T decay, T momentum, T ahead, T direct) {
  RT_IVDEP
  for (int64_t i = 0; i < n; ++i) {
    const T grad = factor * g[i] + decay * w[i], velocity = momentum * v[i] + grad;
    v[i] = velocity;
    w[i] -= lr * (direct * grad + ahead * velocity);
  }
}

// Elements [begin, end).
template <class T>
void sgd_part(const View& w, const View& v, const View& g, int64_t begin, int64_t end, double multiplier,
              const SgdStep& step) {
  T* at = w.as<T>() + begin;
  const T* grad = g.as<T>() + begin;
  const T scale = T(multiplier), lr = T(step.lr), decay = T(step.weight_decay), momentum = T(step.momentum);
  if (momentum == 0) sgd(at, grad, end - begin, scale, lr, decay);
  else
    sgd_momentum(at, v.as<T>() + begin, grad, end - begin, scale, lr, decay, momentum, step.nesterov ? momentum : T(1),
                 step.nesterov ? T(1) : T(0));
}

template <class T>
void adam(T* w, T* m, T* v, const T* g, int64_t n, T factor, T size, T beta1, T rest1, T beta2, T rest2, T root, T eps,
          T decay, T shrink) {
  RT_IVDEP
  for (int64_t i = 0; i < n; ++i) {
    const T grad = factor * g[i] + decay * w[i];
    const T first = beta1 * m[i] + rest1 * grad, second = beta2 * v[i] + rest2 * grad * grad;
    m[i] = first;
    v[i] = second;
    w[i] = shrink * w[i] - size * first / (std::sqrt(second) * root + eps);
  }
}

template <class T> void ema(T* average, const T* w, int64_t n, T decay, T rest) {
  RT_IVDEP
  for (int64_t i = 0; i < n; ++i) average[i] = decay * average[i] + rest * w[i];
}

}  // namespace

void sgd_step(View w, View v, View g, View factor, SgdStep step) {
  const double multiplier = value_of(factor);
  if (multiplier == 0) return;
  for_each_part(w, "sgd_step",
                [&]<class T>(int64_t begin, int64_t end) { sgd_part<T>(w, v, g, begin, end, multiplier, step); });
}

void lars_step(View w, View v, View g, View w_squares, View g_squares, View cells, View factor, LarsStep step) {
  check_parameters(w, "lars_step");
  const double multiplier = value_of(factor);
  if (multiplier == 0) return;
  parallel_for(cells.dims[0], 1, [&](int64_t first, int64_t last) {
    [[maybe_unused]] const FlushDenormals flush;
    for (int64_t c = first; c < last; ++c) {
      const int64_t* const cell = cells.as<int64_t>() + 4 * c;
      LarsScale scale{multiplier, 0};
      if (const int64_t first = c - cell[2]; cell[3] > 0)
        scale = lars_scale(step, w_squares.as<double>()[first], g_squares.as<double>()[first], multiplier);
      const SgdStep sgd{step.lr, step.momentum, scale.weight, step.nesterov};
      const int64_t begin = cell[0] - step.first, end = cell[1] - step.first;
      if (w.dtype == DType::f32) sgd_part<float>(w, v, g, begin, end, scale.gradient, sgd);
      else sgd_part<double>(w, v, g, begin, end, scale.gradient, sgd);
    }
  });
}

void parameter_squares(View sums, View squares, View cells) {
  const int64_t* const table = cells.as<int64_t>();
  parallel_for(cells.dims[0], 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      if (table[4 * c + 2] > 0) continue;
      const double* const from = squares.as<double>() + c;
      sums.as<double>()[c] = row_sum<double>(table[4 * c + 3], [=](int64_t i) { return from[i]; });
    }
  });
}

void adam_step(View w, View m, View v, View g, View factor, AdamStep step) {
  const double multiplier = value_of(factor);
  if (multiplier == 0) return;
  const double correction1 = 1 - std::pow(step.beta1, double(step.number));
  const double correction2 = std::sqrt(1 - std::pow(step.beta2, double(step.number)));
  for_each_part(w, "adam_step", [&]<class T>(int64_t begin, int64_t end) {
    adam<T>(w.as<T>() + begin, m.as<T>() + begin, v.as<T>() + begin, g.as<T>() + begin, end - begin, T(multiplier),
            T(step.lr / correction1), T(step.beta1), T(1 - step.beta1), T(step.beta2), T(1 - step.beta2),
            T(1 / correction2), T(step.eps), step.decoupled ? T(0) : T(step.weight_decay),
            step.decoupled ? T(1 - step.lr * step.weight_decay) : T(1));
  });
}

void ema_step(View average, View w, double decay) {
  for_each_part(w, "ema_step", [&]<class T>(int64_t begin, int64_t end) {
    ema(average.as<T>() + begin, w.as<T>() + begin, end - begin, T(decay), T(1 - decay));
  });
}

RT_ISA_END
