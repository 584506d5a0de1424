#include "kernels/gradient.h"

#include "kernels/cuda/math.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/reducers.cuh"

namespace ringtape::cuda {
namespace {

template <class T>
struct ReduceSquares : Sum {
  using C = T;
  using Acc = T;
  float* y;
  explicit ReduceSquares(float* to) : y(to) {}
  template <int N>
  static __device__ T of(T (&x)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] *= x[i];
    return pairwise<Sum>(x);
  }
  __device__ void finish(int64_t, T sum) const { *y = float(sum); }
};

// One output: always reduced by rows.
template <class T>
void sum_squares(const View& y, const View& x) {
  constexpr int wide = sizeof(T) == 8 ? 1 : int(16 / sizeof(T));
  View one = x;
  for (int d = 0; d < one.rank; ++d) one.dims[d] = 1;
  const ReduceShape s = reduce_shape(one, x);
  const ReduceSquares<T> r(y.as<float>());
  if (reduce_width(x.as<T>(), s.reduced, s.outputs) == wide) reduce_by_rows<wide>(x.device, r, x.as<T>(), s);
  else reduce_by_rows<1>(x.device, r, x.as<T>(), s);
}

__global__ void decide_kernel(float* factor, float* norm, float* scale, const float* squares, GradientRule rule) {
  const GradientDecision d =
      decide_gradient(rule, Math::sqrt(*squares), scale, scale ? scale[0] : 1, scale ? scale[1] : 0);
  *factor = d.factor;
  *norm = d.norm;
  if (scale) scale[0] = d.scale, scale[1] = d.steps;
}

}  // namespace

void square_sum(View y, View x) {
  RT_CHECK_AS(DTypeError, x.dtype == DType::f32 || x.dtype == DType::f64, "square_sum: gradients are f32 or f64, got ",
              x.dtype);
  if (x.dtype == DType::f32) sum_squares<float>(y, x);
  else sum_squares<double>(y, x);
}

void gradient_factor(View factor, View norm, View scale, View squares, GradientRule rule) {
  launch<decide_kernel>(factor.device, Grid{dim3(1), dim3(1)}, factor.as<float>(), norm.as<float>(), scale.as<float>(),
                        squares.as<float>(), rule);
}

}  // namespace ringtape::cuda
