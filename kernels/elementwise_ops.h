#pragma once
#include <cstdint>

// The complete definition of every unary elementwise operation, one row each:
//   name, y(x), dL/dx from g = dL/dy, which of {x, y} it needs, the range from which tests draw x, points without a
//   derivative
// x_again: as x_alone, and what needs y in a backward pass computes it from x again: activations between large layers.
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
                                                                              x_again, -3,  3)    \
  X(silu,    x / (1 + M::exp(-x)),                                                                \
             g * (1 + x * (1 - 1 / (1 + M::exp(-x)))) / (1 + M::exp(-x)),     x_again, -4,  4)    \
  X(mish,    x * M::tanh(RT_SOFTPLUS(x)),                                                         \
             g * (M::tanh(RT_SOFTPLUS(x)) + x / (1 + M::exp(-x)) *                                \
                  (1 - M::tanh(RT_SOFTPLUS(x)) * M::tanh(RT_SOFTPLUS(x)))),   x_again, -4,  4)    \
  X(hardswish, x <= -3 ? T(0) : x >= 3 ? x : x * (x / 6 + T(0.5)),                                \
             x <= -3 ? T(0) : x >= 3 ? g : g * (x / 3 + T(0.5)),              x_again, -4,  4, -3, 3)

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
                                                                              x_again, -2,  2, 0) \
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
  X(leaky_relu, x > 0 ? x : p * x,        x > 0 ? g : p * g,                  x_again, 0.01, -2, 2, 0) \
  X(elu,        x > 0 ? x : p * M::expm1(x), x > 0 ? g : g * p * M::exp(x),   x_again, 1,    -2, 2, 0)
// clang-format on

// The whole definition of every binary elementwise operation, a row each:
//   name, y(a, b), dL/da and dL/db from g = dL/dy, what these need of {a, b, y}, and the ranges that tests draw from
// M and T are as above. A gradient of plain `g` costs no pass. Equal a and b share the gradient of maximum and minimum;
// where one is NaN, neither gets any.
// clang-format off
#define RT_LAYER_BINARY_OPS(X)                                                                                 \
  X(add,     a + b,        g,                         g,                nothing, -2,  2, -2,  2)               \
  X(sub,     a - b,        g,                         -g,               nothing, -2,  2, -2,  2)               \
  X(mul,     a * b,        g * b,                     g * a,            inputs,  -2,  2, -2,  2)               \
  X(div,     a / b,        g / b,                     -g * (a / b) / b, inputs,  -2,  2, 0.5, 2)               \
  X(maximum, a > b || a != a ? a : b,                                                                          \
             a > b ? g : a == b ? g / 2 : T(0), b > a ? g : a == b ? g / 2 : T(0),                             \
                                                                        inputs,  -2,  2, -2,  2)               \
  X(minimum, a < b || a != a ? a : b,                                                                          \
             a < b ? g : a == b ? g / 2 : T(0), b < a ? g : a == b ? g / 2 : T(0),                             \
                                                                        inputs,  -2,  2, -2,  2)               \
  X(pow,     M::pow(a, b),                                                                                     \
             b == 0 ? T(0) : g * b * M::pow(a, b - 1), a == 0 && b >= 0 ? T(0) : g * M::pow(a, b) * M::log(a), \
                                                                        inputs,  0.2, 2, -2,  2)

// The same for those that are rare: GPUs access one element at a time. Slopes over a^2 + b^2 are 0 where that is.
#define RT_RARE_BINARY_OPS(X)                                                                                  \
  X(remainder, M::remainder(a, b), g,               -g * M::quotient(a, b), inputs, -0.9, -0.1, 1, 2)          \
  X(floor_divide, M::quotient(a, b), T(0),          T(0),                   nothing, 0.1, 0.9, 1, 2)           \
  X(atan2,   M::atan2(a, b),                                                                                   \
             a * a + b * b == 0 ? T(0) : g * b / (a * a + b * b),                                              \
             a * a + b * b == 0 ? T(0) : -g * a / (a * a + b * b),  inputs,  -2,  2, 0.5, 2)
#define RT_BINARY_OPS(X) \
  RT_LAYER_BINARY_OPS(X) \
  RT_RARE_BINARY_OPS(X)

// Those of whole numbers and truth values, as int64_t: exact modulo 2^64. x / 0 and x % 0 are 0.
#define RT_WHOLE_OPS(X)                                                                \
  X(add,          int64_t(uint64_t(a) + uint64_t(b)))                                  \
  X(sub,          int64_t(uint64_t(a) - uint64_t(b)))                                  \
  X(mul,          int64_t(uint64_t(a) * uint64_t(b)))                                  \
  X(maximum,      a > b ? a : b)                                                       \
  X(minimum,      a < b ? a : b)                                                       \
  X(pow,          whole_power(a, b))                                                   \
  X(remainder,    whole_quotient(a, b).rest)                                           \
  X(floor_divide, whole_quotient(a, b).quotient)                                       \
  RT_BIT_OPS(X)
#define RT_BIT_OPS(X)     \
  X(bitwise_and, a & b)   \
  X(bitwise_or,  a | b)   \
  X(bitwise_xor, a ^ b)
// clang-format on

// Comparisons and logic (what is not 0 is true), one row each: name, condition. No gradient.
#define RT_COMPARE_OPS(X)               \
  X(equal, a == b)                      \
  X(not_equal, a != b)                  \
  X(less, a < b)                        \
  X(less_equal, a <= b)                 \
  X(greater, a > b)                     \
  X(greater_equal, a >= b)              \
  X(logical_and, ((a != 0) & (b != 0))) \
  X(logical_or, ((a != 0) | (b != 0)))  \
  X(logical_xor, ((a != 0) != (b != 0)))
