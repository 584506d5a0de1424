#pragma once
#include "kernels/kernel.h"

// The whole definition of every binary elementwise operation, a row each:
//   name, y(a, b), dL/da and dL/db from g = dL/dy, what these need of {a, b, y}, and the ranges that tests draw from
// M holds the elementary functions of the device, T is float or double (see kernels/unary.h). A gradient of plain `g`
// costs no pass. Equal a and b share the gradient of maximum and minimum; where one is NaN, neither gets any.
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

namespace ringtape {

// a = quotient b + rest, where the rest has the sign of b, as in Python.
struct WholeQuotient {
  int64_t quotient, rest;
};
RT_HD inline WholeQuotient whole_quotient(int64_t a, int64_t b) {
  if (b == 0) return {0, 0};
  if (b == -1) return {int64_t(0 - uint64_t(a)), 0};  // a / b may not fit
  const int64_t r = a % b, q = a / b;
  return r != 0 && (r < 0) != (b < 0) ? WholeQuotient{q - 1, r + b} : WholeQuotient{q, r};
}
// a^b, for b < 0 rounded to 0: 1 and -1 alone keep a value.
RT_HD inline int64_t whole_power(int64_t a, int64_t b) {
  if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 == 0 ? 1 : -1) : 0;
  uint64_t y = 1, power = uint64_t(a);
  for (; b > 0; b /= 2, power *= power)
    if (b % 2 == 1) y *= power;
  return int64_t(y);
}

// y = f(a, b); da = dL/da, db = dL/db. y and the gradients have one floating dtype; operands of another one are
// converted. Any strides. Inputs broadcast to the output, which has the broadcast shape (da and db too: the caller sums
// them to the shape of a and b).
#define X(name, ...)                                                    \
  RT_KERNEL(name##_forward, void(View y, View a, View b));              \
  RT_KERNEL(name##_backward_a, void(View da, View a, View b, View dy)); \
  RT_KERNEL(name##_backward_b, void(View db, View a, View b, View dy));
RT_BINARY_OPS(X)
#undef X

// Of whole numbers and truth values of any dtypes; the result is stored modulo 2^bits.
#define X(name, ...) RT_KERNEL(name##_whole, void(View y, View a, View b));
RT_WHOLE_OPS(X)
#undef X

}  // namespace ringtape
