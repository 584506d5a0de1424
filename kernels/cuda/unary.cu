#include "kernels/unary.h"

#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/math.cuh"

namespace ringtape::cuda {

#define X(name, y_expr, dx_expr, ...)                                                \
  namespace {                                                                        \
  struct name##_value {                                                              \
    using M = Math;                                                                  \
    template <class T>                                                               \
    __device__ T operator()(T x) const {                                             \
      return y_expr;                                                                 \
    }                                                                                \
  };                                                                                 \
  struct name##_gradient {                                                           \
    using M = Math;                                                                  \
    template <class T>                                                               \
    __device__ T operator()([[maybe_unused]] T x, [[maybe_unused]] T y, T g) const { \
      return dx_expr;                                                                \
    }                                                                                \
  };                                                                                 \
  }                                                                                  \
  void name##_forward(View y, View x) { map(name##_value{}, y, x); }                 \
  void name##_backward(View dx, View x, View y, View dy) { map(name##_gradient{}, dx, x, y, dy); }
RT_UNARY_OPS(X)
#undef X

}  // namespace ringtape::cuda
