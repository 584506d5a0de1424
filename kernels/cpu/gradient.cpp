#include "kernels/gradient.h"

#include <cmath>

#include "kernels/cpu/vector/rows.h"

RT_ISA_BEGIN

void cell_squares(View squares, View x, View cells, int64_t first) {
  RT_CHECK_AS(DTypeError, x.dtype == DType::f32 || x.dtype == DType::f64, "cell_squares: x is f32 or f64, got ",
              x.dtype);
  const auto sum = [&]<class T>(const T* from, int64_t n) {
    return row_sum<double>(n, [=](int64_t i) { return double(from[i]) * double(from[i]); });
  };
  parallel_for(cells.dims[0], 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      const int64_t* const cell = cells.as<int64_t>() + c * cells.strides[0];
      const int64_t at = cell[0] - first, n = cell[1] - cell[0];
      squares.as<double>()[c * squares.strides[0]] =
          x.dtype == DType::f32 ? sum(x.as<float>() + at, n) : sum(x.as<double>() + at, n);
    }
  });
}

void gradient_factor(View factor, View norm, View scale, View squares, GradientRule rule) {
  float* const state = scale.data ? scale.as<float>() : nullptr;
  const double* const sums = squares.as<double>();
  const auto root = float(std::sqrt(row_sum<double>(squares.size(), [=](int64_t i) { return sums[i]; })));
  const GradientDecision d = decide_gradient(rule, root, state, state ? state[0] : 1, state ? state[1] : 0);
  factor.as<float>()[0] = d.factor;
  norm.as<float>()[0] = d.norm;
  if (state) state[0] = d.scale, state[1] = d.steps;
}

RT_ISA_END
