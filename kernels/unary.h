#pragma once
#include "kernels/kernel.h"

// The complete definition of every unary elementwise operation, one row each:
//   name, y(x), dL/dx from g = dL/dy, which of {x, y} it needs, the range from which tests draw x, points without a
//   derivative
// M holds the elementary functions of the device, T is float or double. Each backend expands the table into its own
// functions, compiled for its own target. At points without a derivative, and at NaN, relu and abs have slope 0.
// clang-format off
#define RT_UNARY_OPS(X)                                                                           \
  X(neg,     -x,                   -g,                                        nothing, -2,  2)    \
  X(abs,     M::abs(x),            g * (x > 0 ? T(1) : x < 0 ? T(-1) : T(0)), x_alone, -2,  2, 0) \
  X(exp,     M::exp(x),            g * y,                                     y_alone, -2,  2)    \
  X(log,     M::log(x),            g / x,                                     x_alone, 0.1, 4)    \
  X(sqrt,    M::sqrt(x),           g * (T(0.5) / y),                          y_alone, 0.1, 4)    \
  X(rsqrt,   1 / M::sqrt(x),       g * (T(-0.5) * y / x),                     x_and_y, 0.1, 4)    \
  X(square,  x * x,                g * (2 * x),                               x_alone, -2,  2)    \
  X(relu,    x < 0 ? T(0) : x,     g * (y > 0 ? T(1) : T(0)),                 y_alone, -2,  2, 0) \
  X(sigmoid, 1 / (1 + M::exp(-x)), g * (y * (1 - y)),                         y_alone, -4,  4)    \
  X(tanh,    M::tanh(x),           g * (1 - y * y),                           y_alone, -3,  3)    \
  X(gelu,    x * (T(0.5) + T(0.5) * M::erf(x * T(0.70710678118654752))),                          \
             g * (T(0.5) + T(0.5) * M::erf(x * T(0.70710678118654752)) +                          \
                  x * T(0.39894228040143268) * M::exp(T(-0.5) * x * x)),                          \
                                                                              x_alone, -3,  3)
// clang-format on

namespace ringtape::unary {

enum class Needs : uint8_t { nothing, x_alone, y_alone, x_and_y };

#define X(name, y, dx, needs_, ...) \
  struct name { static constexpr Needs needs = Needs::needs_; };
RT_UNARY_OPS(X)
#undef X

}  // namespace ringtape::unary

namespace ringtape {

// y = f(x); dx = dy f'(x). All of one floating dtype and shape, any strides. If dx does not need x or y, that argument
// may be any view of that shape.
#define X(name, ...)                              \
  RT_KERNEL(name##_forward, void(View y, View x)); \
  RT_KERNEL(name##_backward, void(View dx, View x, View y, View dy));
RT_UNARY_OPS(X)
#undef X

}  // namespace ringtape
