#include "kernels/binary.h"

#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/math.cuh"

namespace ringtape::cuda {

#define RT_GRADIENT(name, expr)                                                                       \
  struct name {                                                                                       \
    using M = Math;                                                                                   \
    template <class T>                                                                                \
    __device__ T operator()([[maybe_unused]] T a, [[maybe_unused]] T b, [[maybe_unused]] T g) const { \
      return expr;                                                                                    \
    }                                                                                                 \
  };
#define X(name, y_expr, da_expr, db_expr, ...)                                    \
  namespace {                                                                     \
  struct name##_value {                                                           \
    using M = Math;                                                               \
    template <class T> __device__ T operator()(T a, T b) const { return y_expr; } \
  };                                                                              \
  RT_GRADIENT(name##_gradient_a, da_expr)                                         \
  RT_GRADIENT(name##_gradient_b, db_expr)                                         \
  }
RT_BINARY_OPS(X)
#undef X

#define RT_FUNCTIONS(name, map)                                                                        \
  void name##_forward(View y, View a, View b) { map(name##_value{}, y, a, b); }                        \
  void name##_backward_a(View da, View a, View b, View dy) { map(name##_gradient_a{}, da, a, b, dy); } \
  void name##_backward_b(View db, View a, View b, View dy) { map(name##_gradient_b{}, db, a, b, dy); }
#define X(name, ...) RT_FUNCTIONS(name, map)
RT_LAYER_BINARY_OPS(X)
#undef X
#define X(name, ...) RT_FUNCTIONS(name, map_float)
RT_RARE_BINARY_OPS(X)
#undef X

#define X(name, expr)                                                          \
  namespace {                                                                  \
  struct name##_of_whole {                                                     \
    __device__ int64_t operator()(int64_t a, int64_t b) const { return expr; } \
  };                                                                           \
  }                                                                            \
  void name##_whole(View y, View a, View b) { map_any<int64_t>(name##_of_whole{}, y, a, b); }
RT_WHOLE_OPS(X)
#undef X

}  // namespace ringtape::cuda
