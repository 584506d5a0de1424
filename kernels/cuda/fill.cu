#include "kernels/fill.h"

#include <cstring>

#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/live.cuh"
#include "kernels/cuda/math.cuh"

namespace ringtape::cuda {
namespace {

template <class U, int N> __global__ void fill_dense(U* y, int64_t n, U value) {
  Vec<U, N> v;
  for (int j = 0; j < N; ++j) v.x[j] = value;
  int64_t i = thread_in_grid() * N;
  for (; i + N <= n; i += threads_in_grid() * N) store(y + i, v);
  for (; i < n; ++i) y[i] = value;
}

template <class U> __global__ void fill_strided(U* y, Index<1> index, uint32_t n, U value) {
  for (int64_t i = thread_in_grid(); i < n; i += threads_in_grid()) {
    int64_t at[1];
    index.offsets(uint32_t(i), at);
    y[at[0]] = value;
  }
}

// U: a type with the size of y's elements.
template <class U> void fill_with(View y, U value) {
  constexpr int width = int(16 / sizeof(U));
  const Layout<1> whole = coalesce(std::array{y});
  const int64_t n = whole.size();
  if (whole.dense(0) && aligned_width(width, y.as<U>()) == width)
    return launch<fill_dense<U, width>>(y.device, covering(y.device, (n + width - 1) / width), y.as<U>(), n, value);
  split(whole, kMaxElements, [&](const Layout<1>& part, const std::array<int64_t, 1>& offset) {
    launch<fill_strided<U>>(y.device, covering(y.device, part.size()), y.as<U>() + offset[0], Index<1>(part),
                            uint32_t(part.size()), value);
  });
}

template <class T> __global__ void fill_range_kernel(T* y, int64_t n, int64_t stride, double first, double step) {
  for (int64_t i = thread_in_grid(); i < n; i += threads_in_grid())
    y[i * stride] = narrow<T>(std::fma(double(i), step, first));
}

template <class T> struct Normal {
  double mean, deviation;
  __device__ void block(T* y, const RandomState& state, uint64_t b, int64_t count) const {
    const Philox4 r = philox(state.seed, uint64_t(state.stream), state.counter + b);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (i < count) y[i] = narrow<T>(number(r, i));
  }
  __device__ double number(const Philox4& r, int i) const {
    constexpr double two_pi = 6.283185307179586;
    const uint32_t first = r.x[i & ~1], second = r.x[i | 1];
    const double radius = Math::sqrt(-2 * Math::log((double(first) + 1) * 0x1p-32));  // the log of (0, 1]
    const double angle = two_pi * double(second) * 0x1p-32;
    return mean + deviation * radius * (i % 2 ? ::sin(angle) : ::cos(angle));
  }
};

// Each thread draws the four numbers of one block of the random stream.
template <class T, class F> __global__ void fill_random(T* y, int64_t n, Live<RandomState> live, F f) {
  const RandomState state = live.get();
  for (int64_t b = thread_in_grid(); 4 * b < n; b += threads_in_grid())
    f.block(y + 4 * b, state, uint64_t(b), n - 4 * b);
}

template <template <class> class F> void draw(View y, RandomState state, double a, double b) {
  const Live<RandomState> live = live_state(y.device, state);
  dispatch_float(y.dtype, [&]<class T>() {
    launch<fill_random<T, F<T>>>(y.device, covering(y.device, (y.size() + 3) / 4), y.as<T>(), y.size(), live,
                                 F<T>{a, b});
  });
}

}  // namespace

void fill(View y, double value) {
  if (y.size() == 0) return;
  dispatch(y.dtype, [&]<class T>() {
    fill_with(y, std::bit_cast<bits_t<T>>(static_cast<T>(static_cast<compute_t<T>>(value))));
  });
}

void fill_range(View y, double first, double step) {
  dispatch(y.dtype, [&]<class T>() {
    launch<fill_range_kernel<T>>(y.device, covering(y.device, y.size()), y.as<T>(), y.size(), y.strides[0], first,
                                 step);
  });
}

void fill_uniform(View y, RandomState state, double low, double high) { draw<Uniform>(y, state, low, high); }
void fill_normal(View y, RandomState state, double mean, double deviation) { draw<Normal>(y, state, mean, deviation); }

}  // namespace ringtape::cuda
