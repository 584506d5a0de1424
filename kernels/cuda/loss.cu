#include "kernels/loss.h"

#include <algorithm>

#include "core/tensor.h"
#include "kernels/copy.h"
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/math.cuh"
#include "kernels/fill.h"
#include "kernels/reduce.h"

namespace ringtape::cuda {
namespace {

// A loss that is chosen at run time: all threads take the same branch. With weights operands are read one by one: they
// repeat in most cases.
template <LossPart part> struct LossFunction {
  Loss loss;
  double q, scale = 1;

  template <class T> __device__ T of(T x, T t, T q) const {
    using M = Math;
    switch (loss) {
#define X(name, y, dx, dt) \
  case Loss::name: return part == LossPart::value ? T(y) : part == LossPart::to_input ? T(dx) : T(dt);
      RT_LOSSES(X)
#undef X
    }
    return x;
  }
  template <class C> __device__ C operator()(C x, C t) const { return of(x, t, C(q)) * C(scale); }
  template <class C> __device__ C operator()(C x, C t, C w, C of_element) const {
    return w * of(x, t, of_element) * C(scale);
  }
};

template <LossPart part> struct LossGradient {
  LossFunction<part> f;
  template <class C, class... X> __device__ C operator()(C dy, X... x) const { return f(x...) * dy; }
};

template <class T> constexpr int kLossWidth = sizeof(T) == 8 ? 1 : int(16 / sizeof(T));
constexpr int kLossThreads = 256;

// partial[block] = the sum over the block's elements, divided by `divisor`.
template <class T>
__global__ void __launch_bounds__(kLossThreads) loss_sums(compute_t<T>* partial, LossFunction<LossPart::value> f,
                                                          const T* x, const T* t, int64_t n, double divisor) {
  using C = compute_t<T>;
  constexpr int width = kLossWidth<T>;
  C total = 0;
  int64_t i = thread_in_grid() * width;
  for (; i + width <= n; i += threads_in_grid() * width) {
    const Vec<T, width> of_x = load<width>(x + i), of_t = load<width>(t + i);
#pragma unroll
    for (int j = 0; j < width; ++j) total += f(C(of_x.x[j]), C(of_t.x[j]));
  }
  for (; i < n; ++i) total += f(C(x[i]), C(t[i]));  // the rest, by one thread
  total = block_reduce<Sum>(total);
  if (threadIdx.x == 0) partial[blockIdx.x] = C(double(total) / divisor);
}

// x itself, or a copy whose elements lie side by side for loss_sums.
template <class T> Tensor packed(const View& x, View& to) {
  to = x;
  if (x.contiguous() && aligned_width(kLossWidth<T>, x.as<T>()) == kLossWidth<T>) return {};
  const Tensor dense(x.shape(), x.dtype, x.device);
  copy(dense, x);
  to = dense;
  return dense;
}

// v, or one number for each element of x.
Tensor number_like(View& v, const View& x, double number) {
  if (v.data) return {};
  const Tensor one(Shape{}, x.dtype, x.device);
  fill(one, number);
  v = x;
  v.data = View(one).data;
  std::fill_n(v.strides, v.rank, 0);
  return one;
}

// y, of one element, = the sum of parts (n).
void add_losses(View y, const Tensor& parts) {
  y.rank = 1, y.dims[0] = y.strides[0] = 1;
  sum_forward(y, parts);
}

}  // namespace

void loss_forward(View y, View x, View t, View w, View q, LossRule rule) {
  const int64_t n = x.size();
  LossFunction<LossPart::value> f{rule.loss, rule.q};
  dispatch_float(x.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const bool weighted = n > 0 && (w.data || q.data), each = y.size() == n && rule.divisor == 1;
    if (each && !weighted) return map_as<C, T, T>(f, y, x, t);
    if (weighted) {
      const Tensor one = number_like(w, x, 1), parameter = number_like(q, x, rule.q);
      f.scale = 1 / rule.divisor;
      if (each) return map_any<C>(f, y, x, t, w, q);
      const Tensor losses({n}, y.dtype, x.device);
      const View terms = losses;
      View shaped = x;
      shaped.data = terms.data, shaped.dtype = terms.dtype;
      for (int64_t d = x.rank - 1, step = 1; d >= 0; step *= x.dims[d--]) shaped.strides[d] = step;
      map_any<C>(f, shaped, x, t, w, q);
      return add_losses(y, losses);
    }
    View dense_x, dense_t;
    const Tensor kept_x = packed<T>(x, dense_x), kept_t = packed<T>(t, dense_t);
    const int64_t blocks = std::clamp<int64_t>(divide_up(n, 4 * kLossThreads * kLossWidth<T>), 1, 1024);
    Tensor partial;
    if (blocks > 1) partial = Tensor({blocks}, y.dtype, x.device);
    launch<loss_sums<T>>(x.device, Grid{dim3(unsigned(blocks)), dim3(kLossThreads)},
                         blocks > 1 ? View(partial).as<C>() : y.as<C>(), f, dense_x.as<const T>(),
                         dense_t.as<const T>(), n, rule.divisor);
    if (blocks > 1) add_losses(y, partial);
  });
}

void loss_backward(View dto, View dy, View x, View t, View w, View q, LossRule rule, LossPart part) {
  if (x.size() == 0) return;
  const auto run = [&]<LossPart which>() {
    const LossGradient<which> f{{rule.loss, rule.q, 1 / rule.divisor}};
    dispatch_float(x.dtype, [&]<class T>() {
      using C = compute_t<T>;
      if (!w.data && !q.data) return map_as<T, C, T, T>(f, dto, dy, x, t);
      const Tensor one = number_like(w, x, 1), parameter = number_like(q, x, rule.q);
      map_any<C>(f, dto, dy, x, t, w, q);
    });
  };
  part == LossPart::to_input ? run.template operator()<LossPart::to_input>()
                             : run.template operator()<LossPart::to_target>();
}

}  // namespace ringtape::cuda
