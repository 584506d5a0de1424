#include "kernels/gradient.h"

#include "kernels/cuda/block.cuh"
#include "kernels/cuda/math.cuh"

namespace ringtape::cuda {
namespace {

constexpr int kThreads = 256;

// One block per cell.
template <class T>
__global__ void __launch_bounds__(kThreads) cell_squares_kernel(double* squares, int64_t apart, const T* x,
                                                                const int64_t* cells, int64_t columns, int64_t first) {
  const int64_t* const cell = cells + columns * int64_t(blockIdx.x);
  double sum = 0;
  for (int64_t i = cell[0] - first + threadIdx.x; i < cell[1] - first; i += kThreads)
    sum += double(x[i]) * double(x[i]);
  sum = block_reduce<Sum>(sum);
  if (threadIdx.x == 0) squares[apart * int64_t(blockIdx.x)] = sum;
}

__global__ void __launch_bounds__(kThreads)
    decide_kernel(float* factor, float* norm, float* scale, const double* squares, int64_t count, GradientRule rule) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) sum += squares[i];
  sum = block_reduce<Sum>(sum);
  if (threadIdx.x > 0) return;
  const GradientDecision d =
      decide_gradient(rule, float(Math::sqrt(sum)), scale, scale ? scale[0] : 1, scale ? scale[1] : 0);
  *factor = d.factor;
  *norm = d.norm;
  if (scale) scale[0] = d.scale, scale[1] = d.steps;
}

}  // namespace

void cell_squares(View squares, View x, View cells, int64_t first) {
  RT_CHECK_AS(DTypeError, x.dtype == DType::f32 || x.dtype == DType::f64, "cell_squares: x is f32 or f64, got ",
              x.dtype);
  const Grid grid{dim3(unsigned(cells.dims[0])), dim3(kThreads)};
  const auto run = [&]<class T>(const T* from) {
    launch<cell_squares_kernel<T>>(x.device, grid, squares.as<double>(), squares.strides[0], from, cells.as<int64_t>(),
                                   cells.strides[0], first);
  };
  if (x.dtype == DType::f32) run(x.as<const float>());
  else run(x.as<const double>());
}

void gradient_factor(View factor, View norm, View scale, View squares, GradientRule rule) {
  launch<decide_kernel>(factor.device, Grid{dim3(1), dim3(kThreads)}, factor.as<float>(), norm.as<float>(),
                        scale.as<float>(), squares.as<double>(), squares.size(), rule);
}

}  // namespace ringtape::cuda
