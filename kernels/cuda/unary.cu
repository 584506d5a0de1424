#include "kernels/unary.h"

#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/math.cuh"

namespace ringtape::cuda {
namespace {

#define X(name, y_expr, dx_expr, ...)                                                                   \
  struct name##_value {                                                                                 \
    using M = Math;                                                                                     \
    template <class T> __device__ T operator()(T x) const { return y_expr; }                            \
  };                                                                                                    \
  struct name##_gradient {                                                                              \
    using M = Math;                                                                                     \
    template <class T> __device__ T operator()([[maybe_unused]] T x, [[maybe_unused]] T y, T g) const { \
      return dx_expr;                                                                                   \
    }                                                                                                   \
  };
RT_UNARY_OPS(X)
#undef X

#define X(name, y_expr, ...)                                                 \
  struct name##_value {                                                      \
    using M = Math;                                                          \
    template <class T> __device__ T operator()(T x) const { return y_expr; } \
  };
RT_STEP_OPS(X)
#undef X

#define X(name, y_expr, dx_expr, ...)                               \
  struct name##_value {                                             \
    using M = Math;                                                 \
    double number;                                                  \
    template <class T> __device__ T operator()(T x) const {         \
      const T p = T(number);                                        \
      return y_expr;                                                \
    }                                                               \
  };                                                                \
  struct name##_gradient {                                          \
    using M = Math;                                                 \
    double number;                                                  \
    template <class T> __device__ T operator()(T x, T, T g) const { \
      const T p = T(number);                                        \
      return dx_expr;                                               \
    }                                                               \
  };
RT_UNARY_NUMBER_OPS(X)
#undef X

}  // namespace

#define X(name, ...)                                                 \
  void name##_forward(View y, View x) { map(name##_value{}, y, x); } \
  void name##_backward(View dx, View x, View y, View dy) { map(name##_gradient{}, dx, x, y, dy); }
RT_LAYER_OPS(X)
#undef X

#define X(name, ...)                                                       \
  void name##_forward(View y, View x) { map_float(name##_value{}, y, x); } \
  void name##_backward(View dx, View x, View y, View dy) { map_float(name##_gradient{}, dx, x, y, dy); }
RT_OTHER_UNARY_OPS(X)
#undef X

#define X(name, ...) \
  void name##_forward(View y, View x) { map_float(name##_value{}, y, x); }
RT_STEP_OPS(X)
#undef X

#define X(name, ...)                                                            \
  void name##_forward(View y, View x, double p) { map(name##_value{p}, y, x); } \
  void name##_backward(View dx, View x, View y, View dy, double p) { map(name##_gradient{p}, dx, x, y, dy); }
RT_UNARY_NUMBER_OPS(X)
#undef X

}  // namespace ringtape::cuda
