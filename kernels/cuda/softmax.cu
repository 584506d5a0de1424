#include "kernels/cuda/softmax.cuh"

#include "kernels/softmax.h"

namespace ringtape::cuda {
namespace {

template <class T> struct SoftmaxForward {
  using Element = T;
  using C = compute_t<T>;
  const T* in[1];
  T* y;
  template <class R> __device__ void operator()(R& row) const {
    const auto [top, sum] = exp_sum<T>(row);
    const C scale = 1 / sum;
    row.write(y, [top = top, scale](int64_t, C x) { return exp_of<T>(x - top) * scale; });
  }
};

template <class T> struct SoftmaxBackward {
  using Element = T;
  using C = compute_t<T>;
  const T* in[2];
  T* dx;
  template <class R> __device__ void operator()(R& row) const {
    const C dot = row.template reduce<Sum>([](int64_t, C y, C dy) { return y * dy; });
    row.write(dx, [=](int64_t, C y, C dy) { return y * (dy - dot); });
  }
};

template <class T> struct LogSoftmaxForward {
  using Element = T;
  using C = compute_t<T>;
  const T* in[1];
  T* y;
  template <class R> __device__ void operator()(R& row) const {
    const auto [top, sum] = exp_sum<T>(row);
    const C log_sum = Math::log(sum);
    // top + log_sum would lose digits to top.
    row.write(y, [top = top, log_sum](int64_t, C x) { return (x - top) - log_sum; });
  }
};

template <class T> struct LogSoftmaxBackward {
  using Element = T;
  using C = compute_t<T>;
  const T* in[2];
  T* dx;
  template <class R> __device__ void operator()(R& row) const {
    const C sum = row.template reduce<Sum>([](int64_t, C, C dy) { return dy; });
    row.write(dx, [=](int64_t, C y, C dy) { return dy - exp_of<T>(y) * sum; });
  }
};

template <template <class> class F, class... X> void by_rows(View y, X... x) {
  dispatch_float(y.dtype, [&]<class T>() {
    for_each_row(y.device, F<T>{{x.template as<T>()...}, y.as<T>()}, y.as<T>(), rows_of(y), columns_of(y));
  });
}

}  // namespace

void softmax_forward(View y, View x) { by_rows<SoftmaxForward>(y, x); }
void softmax_backward(View dx, View y, View dy) { by_rows<SoftmaxBackward>(dx, y, dy); }
void log_softmax_forward(View y, View x) { by_rows<LogSoftmaxForward>(y, x); }
void log_softmax_backward(View dx, View y, View dy) { by_rows<LogSoftmaxBackward>(dx, y, dy); }

}  // namespace ringtape::cuda
