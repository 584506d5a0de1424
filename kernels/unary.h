#pragma once
#include "kernels/kernel.h"

// The complete definition of every unary elementwise operation, one row each:
//   name, y(x), dL/dx from g = dL/dy, which of {x, y} it needs, the range from which tests draw x, points without a
//   derivative
// M holds the elementary functions of the device, T is float or double. Each backend expands the table into its own
// functions, compiled for its own target; GPUs access operands of the first table's 16 bytes at a time. At points
// without a derivative, and at NaN, relu and abs have slope 0; round goes to the even neighbour; the sign of NaN is 0.
// clang-format off
#define RT_SOFTPLUS(x) (((x) < 0 ? T(0) : (x)) + M::log1p(M::exp(-M::abs(x))))
#define RT_LAYER_OPS(X)                                                                           \
  X(neg,     -x,                   -g,                                        nothing, -2,  2)    \
  X(abs,     M::abs(x),            g * (x > 0 ? T(1) : x < 0 ? T(-1) : T(0)), x_alone, -2,  2, 0) \
  X(exp,     M::exp(x),            g * y,                                     y_alone, -2,  2)    \
  X(log,     M::log(x),            g / x,                                     x_alone, 0.1, 4)    \
  X(sqrt,    M::sqrt(x),           g * (T(0.5) / y),                          y_alone, 0.1, 4)    \
  X(rsqrt,   1 / M::sqrt(x),       g * (T(-0.5) * y / M::abs(x)),             x_and_y, 0.1, 4)    \
  X(square,  x * x,                g * (2 * x),                               x_alone, -2,  2)    \
  X(relu,    x < 0 ? T(0) : x,     g * (y > 0 ? T(1) : T(0)),                 y_alone, -2,  2, 0) \
  X(sigmoid, 1 / (1 + M::exp(-x)), g * (y * (1 - y)),                         y_alone, -4,  4)    \
  X(softplus, RT_SOFTPLUS(x),      g / (1 + M::exp(-x)),                      x_alone, -4,  4)    \
  X(tanh,    M::tanh(x),           g * (1 - y * y),                           y_alone, -3,  3)    \
  X(gelu,    x * (T(0.5) + T(0.5) * M::erf(x * T(0.70710678118654752))),                          \
             g * (T(0.5) + T(0.5) * M::erf(x * T(0.70710678118654752)) +                          \
                  x * T(0.39894228040143268) * M::exp(T(-0.5) * x * x)),                          \
                                                                              x_alone, -3,  3)    \
  X(silu,    x / (1 + M::exp(-x)),                                                                \
             g * (1 + x * (1 - 1 / (1 + M::exp(-x)))) / (1 + M::exp(-x)),     x_alone, -4,  4)    \
  X(mish,    x * M::tanh(RT_SOFTPLUS(x)),                                                         \
             g * (M::tanh(RT_SOFTPLUS(x)) + x / (1 + M::exp(-x)) *                                \
                  (1 - M::tanh(RT_SOFTPLUS(x)) * M::tanh(RT_SOFTPLUS(x)))),   x_alone, -4,  4)    \
  X(hardswish, x <= -3 ? T(0) : x >= 3 ? x : x * (x / 6 + T(0.5)),                                \
             x <= -3 ? T(0) : x >= 3 ? g : g * (x / 3 + T(0.5)),              x_alone, -4,  4, -3, 3)

#define RT_OTHER_UNARY_OPS(X)                                                                     \
  X(expm1,   M::expm1(x),          g * (y + 1),                               y_alone, -2,  2)    \
  X(log2,    M::log2(x),           g / (x * T(0.69314718055994531)),          x_alone, 0.1, 4)    \
  X(log1p,   M::log1p(x),          g / (1 + x),                               x_alone, -0.8, 4)   \
  X(reciprocal, 1 / x,             -g * y * y,                                y_alone, 0.5, 2)    \
  X(sin,     M::sin(x),            g * M::cos(x),                             x_alone, -4,  4)    \
  X(cos,     M::cos(x),            -g * M::sin(x),                            x_alone, -4,  4)    \
  X(erf,     M::erf(x),            g * T(1.1283791670955126) * M::exp(-x * x), x_alone, -2, 2)    \
  X(log_sigmoid, -RT_SOFTPLUS(-x), g / (1 + M::exp(x)),                       x_alone, -4,  4)    \
  X(selu,    T(1.0507009873554805) * (x > 0 ? x : T(1.6732632423543773) * M::expm1(x)),           \
             g * T(1.0507009873554805) * (x > 0 ? T(1) : T(1.6732632423543773) * M::exp(x)),      \
                                                                              x_alone, -2,  2, 0) \
  X(hardsigmoid, x <= -3 ? T(0) : x >= 3 ? T(1) : x / 6 + T(0.5),                                 \
             x > -3 && x < 3 ? g / 6 : T(0),                                  x_alone, -4,  4, -3, 3)

#define RT_UNARY_OPS(X) \
  RT_LAYER_OPS(X)       \
  RT_OTHER_UNARY_OPS(X)

// Those of slope 0 everywhere: name, y(x), the range from which tests draw x.
#define RT_STEP_OPS(X)                        \
  X(floor, M::floor(x),            0.1, 0.9)  \
  X(ceil,  M::ceil(x),             0.1, 0.9)  \
  X(round, M::round(x),            0.6, 1.4)  \
  X(trunc, M::trunc(x),            0.1, 0.9)  \
  X(sign,  T(x > 0) - T(x < 0),    0.1, 2)

// The same for those with a number p: its default is the fifth column.
#define RT_UNARY_NUMBER_OPS(X)                                                                    \
  X(leaky_relu, x > 0 ? x : p * x,        x > 0 ? g : p * g,                  x_alone, 0.01, -2, 2, 0) \
  X(elu,        x > 0 ? x : p * M::expm1(x), x > 0 ? g : g * p * M::exp(x),   x_alone, 1,    -2, 2, 0)
// clang-format on

namespace ringtape::unary {

enum class Needs : uint8_t { nothing, x_alone, y_alone, x_and_y };

#define X(name, y, dx, needs_, ...)               \
  struct name {                                   \
    static constexpr Needs needs = Needs::needs_; \
  };
RT_UNARY_OPS(X)
RT_UNARY_NUMBER_OPS(X)
#undef X

}  // namespace ringtape::unary

namespace ringtape {

// y = f(x); dx = dy f'(x). All of one floating dtype and shape, any strides. If dx does not need x or y, that argument
// may be any view of that shape.
#define X(name, ...)                               \
  RT_KERNEL(name##_forward, void(View y, View x)); \
  RT_KERNEL(name##_backward, void(View dx, View x, View y, View dy));
RT_UNARY_OPS(X)
#undef X
#define X(name, ...) RT_KERNEL(name##_forward, void(View y, View x));
RT_STEP_OPS(X)
#undef X
#define X(name, ...)                                         \
  RT_KERNEL(name##_forward, void(View y, View x, double p)); \
  RT_KERNEL(name##_backward, void(View dx, View x, View y, View dy, double p));
RT_UNARY_NUMBER_OPS(X)
#undef X

}  // namespace ringtape
