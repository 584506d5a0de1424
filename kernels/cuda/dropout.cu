#include "kernels/dropout.h"

#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/live.cuh"

namespace ringtape::cuda {
namespace {

// Each thread computes the four elements of one block of the random stream.
template <class T, bool aligned>
__global__ void dropout_kernel(T* y, const T* x, int64_t n, float p, compute_t<T> scale, Live<RandomState> live) {
  using C = compute_t<T>;
  const RandomState state = live.get();
  for (int64_t b = thread_in_grid(); 4 * b < n; b += threads_in_grid()) {
    const Philox4 r = philox(state.seed, uint64_t(state.stream), state.counter + uint64_t(b));
    const auto keep = [&](T v, int i) { return uniform_from_bits(r.x[i]) >= p ? T(C(v) * scale) : T(C(0)); };
    if (aligned && 4 * b + 4 <= n) {
      Vec<T, 4> v = load<4>(x + 4 * b);
      for (int i = 0; i < 4; ++i) v.x[i] = keep(v.x[i], i);
      store(y + 4 * b, v);
    } else {
      for (int i = 0; i < 4 && 4 * b + i < n; ++i) y[4 * b + i] = keep(x[4 * b + i], i);
    }
  }
}

}  // namespace

void dropout_forward(View y, View x, double p, RandomState state) {
  const Live<RandomState> live = live_state(y.device, state);
  dispatch_float(y.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const int64_t n = y.size();
    const Grid grid = covering(y.device, (n + 3) / 4);
    const C scale = p < 1 ? C(1 / (1 - p)) : C(0);
    if (sizeof(T) <= 4 && aligned_width(4, y.as<T>(), x.as<T>()) == 4)
      launch<dropout_kernel<T, sizeof(T) <= 4>>(y.device, grid, y.as<T>(), x.as<T>(), n, float(p), scale, live);
    else launch<dropout_kernel<T, false>>(y.device, grid, y.as<T>(), x.as<T>(), n, float(p), scale, live);
  });
}

}  // namespace ringtape::cuda
