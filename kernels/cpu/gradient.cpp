#include "kernels/gradient.h"

#include <cmath>

#include "kernels/cpu/reduce.h"

RT_ISA_BEGIN

namespace {

struct SumOfSquares {
  static constexpr bool kMaps = true;
  template <class C> static C identity() { return C(0); }
  template <class V> RT_INLINE static V combine(V a, V b) { return a + b; }
  template <class C> RT_INLINE static C map(C x, C) { return x * x; }
};

}  // namespace

void square_sum(View y, View x) {
  RT_CHECK_AS(DTypeError, x.dtype == DType::f32 || x.dtype == DType::f64, "square_sum: gradients are f32 or f64, got ",
              x.dtype);
  View one = x;  // x's rank, and one element
  for (int d = 0; d < one.rank; ++d) one.dims[d] = 1;
  const ReducePlan plan(one, x);
  const auto total = [&]<class C>(C out) {
    reduce<SumOfSquares, C>(plan, &out, nullptr, [](double sum, C) { return C(sum); });
    return float(out);
  };
  y.as<float>()[0] = x.dtype == DType::f32 ? total(0.0f) : total(0.0);
}

void gradient_factor(View factor, View norm, View scale, View squares, GradientRule rule) {
  float* const state = scale.data ? scale.as<float>() : nullptr;
  const float root = std::sqrt(squares.as<float>()[0]);
  const GradientDecision d = decide_gradient(rule, root, state, state ? state[0] : 1, state ? state[1] : 0);
  factor.as<float>()[0] = d.factor;
  norm.as<float>()[0] = d.norm;
  if (state) state[0] = d.scale, state[1] = d.steps;
}

RT_ISA_END
