#include "kernels/unary.h"

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/vector/math.h"

RT_ISA_BEGIN

namespace {
using M = Math;
}

#define X(name, y_expr, dx_expr, ...)                                                                                \
  void name##_forward(View y, View x) {                                                                              \
    map([]<class T>(T x) { return y_expr; }, y, x);                                                                  \
  }                                                                                                                  \
  void name##_backward(View dx, View x, View y, View dy) {                                                           \
    map([]<class T>([[maybe_unused]] T x, [[maybe_unused]] T y, [[maybe_unused]] T g) { return dx_expr; }, dx, x, y, \
        dy);                                                                                                         \
  }
RT_UNARY_OPS(X)
#undef X

#define X(name, y_expr, ...)                        \
  void name##_forward(View y, View x) {             \
    map([]<class T>(T x) { return y_expr; }, y, x); \
  }
RT_STEP_OPS(X)
#undef X

#define X(name, y_expr, dx_expr, ...)                                     \
  void name##_forward(View y, View x, double number) {                    \
    map(                                                                  \
        [number]<class T>(T x) {                                          \
          const T p = T(number);                                          \
          return y_expr;                                                  \
        },                                                                \
        y, x);                                                            \
  }                                                                       \
  void name##_backward(View dx, View x, View y, View dy, double number) { \
    map(                                                                  \
        [number]<class T>(T x, T, T g) {                                  \
          const T p = T(number);                                          \
          return dx_expr;                                                 \
        },                                                                \
        dx, x, y, dy);                                                    \
  }
RT_UNARY_NUMBER_OPS(X)
#undef X

RT_ISA_END
