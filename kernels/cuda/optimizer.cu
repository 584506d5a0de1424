#include "kernels/optimizer.h"

#include <cmath>

#include "kernels/cuda/block.cuh"
#include "kernels/cuda/live.cuh"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/vector.cuh"

namespace ringtape::cuda {
namespace {

template <class T> struct Sgd {
  T lr, decay, momentum, ahead, direct;  // w -= lr (direct g + ahead v)

  __device__ void operator()(T& w, T& v, T g) const {
    const T grad = g + decay * w;
    v = momentum * v + grad;
    w -= lr * (direct * grad + ahead * v);
  }
};

template <class T> struct Adam {
  T size, beta1, rest1, beta2, rest2, root, eps, decay, shrink;  // w = shrink w - size m / (root sqrt(v) + eps)

  __device__ void operator()(T& w, T& m, T& v, T g) const {
    const T grad = g + decay * w;
    m = beta1 * m + rest1 * grad;
    v = beta2 * v + rest2 * grad * grad;
    w = shrink * w - size * m / (Math::sqrt(v) * root + eps);
  }
};

// Applies step(w, states ..., factor g) to every element of flat buffers, N at a time.
template <int N, class T, class Step, class... State>
__global__ void step_kernel(Live<Step> live, int64_t n, const float* factor, const T* g, T* w, State*... state) {
  const T multiplier = factor ? T(*factor) : T(1);
  if (multiplier == 0) return;
  const Step step = live.get();
  const auto apply = [&]<int M>(int64_t i, Vec<T, M> weight, Vec<State, M>... s) {
    const Vec<T, M> grad = load<M>(g + i);
#pragma unroll
    for (int j = 0; j < M; ++j) step(weight.x[j], s.x[j]..., multiplier * grad.x[j]);
    store(w + i, weight);
    (store(state + i, s), ...);
  };
  int64_t i = thread_in_grid() * N;
  for (; i + N <= n; i += threads_in_grid() * N) apply(i, load<N>(w + i), load<N>(state + i)...);
  for (; i < n; ++i) apply(i, load<1>(w + i), load<1>(state + i)...);
}

template <class T, class Step, class... State>
void run(const Live<Step>& step, const View& w, const View& g, const View& factor, State*... state) {
  constexpr int wide = 16 / sizeof(T);
  const int64_t n = w.size();
  const Grid grid = covering(w.device, (n + wide - 1) / wide);
  if (aligned_width(wide, g.as<const T>(), w.as<const T>(), static_cast<const T*>(state)...) == wide)
    launch<step_kernel<wide, T, Step, State...>>(w.device, grid, step, n, factor.as<float>(), g.as<T>(), w.as<T>(),
                                                 state...);
  else
    launch<step_kernel<1, T, Step, State...>>(w.device, grid, step, n, factor.as<float>(), g.as<T>(), w.as<T>(),
                                              state...);
}

template <class F> void for_dtype(const View& w, const char* name, const F& f) {
  RT_CHECK_AS(DTypeError, w.dtype == DType::f32 || w.dtype == DType::f64, name, ": parameters are f32 or f64, got ",
              w.dtype);
  if (w.dtype == DType::f32) f.template operator()<float>();
  else f.template operator()<double>();
}

// Without momentum there is no v.
template <class T> struct PlainSgd {
  T lr, decay;
  __device__ void operator()(T& w, T g) const { w -= lr * (g + decay * w); }
};

constexpr int kLarsThreads = 256;

// One block per cell.
template <class T>
__global__ void __launch_bounds__(kLarsThreads)
    lars_step_kernel(Live<LarsStep> live, const float* factor, const T* g, const double* w_squares,
                     const double* g_squares, const int64_t* cells, T* w, T* v) {
  const double multiplier = factor ? double(*factor) : 1;
  if (multiplier == 0) return;
  const LarsStep step = live.get();
  const int64_t* const cell = cells + 4 * int64_t(blockIdx.x);
  LarsScale scale{multiplier, 0};
  if (const int64_t first = int64_t(blockIdx.x) - cell[2]; cell[3] > 0)
    scale = lars_scale(step, w_squares[first], g_squares[first], multiplier);
  const T gradient = T(scale.gradient);
  const Sgd<T> sgd{T(step.lr), T(scale.weight), T(step.momentum), step.nesterov ? T(step.momentum) : T(1),
                   step.nesterov ? T(1) : T(0)};
  for (int64_t i = cell[0] - step.first + threadIdx.x; i < cell[1] - step.first; i += kLarsThreads) {
    T velocity = v ? v[i] : T(0);
    sgd(w[i], velocity, gradient * g[i]);
    if (v) v[i] = velocity;
  }
}

// One block per cell; those of a parameter's first cell do the work.
__global__ void __launch_bounds__(kLarsThreads)
    parameter_squares_kernel(double* sums, const double* squares, const int64_t* cells) {
  const int64_t* const cell = cells + 4 * int64_t(blockIdx.x);
  if (cell[2] > 0) return;
  double sum = 0;
  for (int64_t i = threadIdx.x; i < cell[3]; i += kLarsThreads) sum += squares[int64_t(blockIdx.x) + i];
  sum = block_reduce<Sum>(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

template <class T> struct Ema {
  T decay, rest;
  __device__ void operator()(T& average, T w) const { average = decay * average + rest * w; }
};

}  // namespace

void sgd_step(View w, View v, View g, View factor, SgdStep step) {
  for_dtype(w, "sgd_step", [&]<class T>() {
    const auto plain = [](const SgdStep& s) { return PlainSgd<T>{T(s.lr), T(s.weight_decay)}; };
    if (T(step.momentum) == 0) return run<T>(live_step(w.device, step, plain), w, g, factor);
    const auto with_momentum = [](const SgdStep& s) {
      const T momentum = T(s.momentum);
      return Sgd<T>{T(s.lr), T(s.weight_decay), momentum, s.nesterov ? momentum : T(1), s.nesterov ? T(1) : T(0)};
    };
    run<T>(live_step(w.device, step, with_momentum), w, g, factor, v.as<T>());
  });
}

void lars_step(View w, View v, View g, View w_squares, View g_squares, View cells, View factor, LarsStep step) {
  const Grid grid{dim3(unsigned(cells.dims[0])), dim3(kLarsThreads)};
  const auto live = live_step(w.device, step, [](const LarsStep& s) { return s; });
  for_dtype(w, "lars_step", [&]<class T>() {
    launch<lars_step_kernel<T>>(w.device, grid, live, factor.as<float>(), g.as<T>(), w_squares.as<double>(),
                                g_squares.as<double>(), cells.as<int64_t>(), w.as<T>(), v.as<T>());
  });
}

void parameter_squares(View sums, View squares, View cells) {
  launch<parameter_squares_kernel>(sums.device, Grid{dim3(unsigned(cells.dims[0])), dim3(kLarsThreads)},
                                   sums.as<double>(), squares.as<double>(), cells.as<int64_t>());
}

void adam_step(View w, View m, View v, View g, View factor, AdamStep step) {
  for_dtype(w, "adam_step", [&]<class T>() {
    const auto adam = [](const AdamStep& s) {
      const double correction1 = 1 - std::pow(s.beta1, double(s.number));
      const double correction2 = std::sqrt(1 - std::pow(s.beta2, double(s.number)));
      return Adam<T>{.size = T(s.lr / correction1),
                     .beta1 = T(s.beta1),
                     .rest1 = T(1 - s.beta1),
                     .beta2 = T(s.beta2),
                     .rest2 = T(1 - s.beta2),
                     .root = T(1 / correction2),
                     .eps = T(s.eps),
                     .decay = s.decoupled ? T(0) : T(s.weight_decay),
                     .shrink = s.decoupled ? T(1 - s.lr * s.weight_decay) : T(1)};
    };
    run<T>(live_step(w.device, step, adam), w, g, factor, m.as<T>(), v.as<T>());
  });
}

void ema_step(View average, View w, double decay) {
  for_dtype(w, "ema_step", [&]<class T>() {
    const Live<Ema<T>> constant{{T(decay), T(1 - decay)}, nullptr};
    run<T>(constant, average, w, View{});
  });
}

}  // namespace ringtape::cuda
