#pragma once
#include "kernels/kernel.h"

// The whole definition of every binary elementwise operation, a row each:
//   name, y(a, b), dL/da and dL/db from g = dL/dy, what these need of {a, b, y}, and the ranges that tests draw from
// M holds the elementary functions of the device, T is float or double (see kernels/unary.h). A gradient of plain `g`
// costs no pass. Equal a and b share the gradient of maximum and minimum; where one is NaN, neither gets any.
// clang-format off
#define RT_BINARY_OPS(X)                                                                                       \
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
// clang-format on

namespace ringtape {

// y = f(a, b); da = dL/da, db = dL/db. All of one floating dtype; any strides. Inputs broadcast to the output, which
// has the broadcast shape (da and db too: the caller sums them to the shape of a and b).
#define X(name, ...)                                                \
  RT_KERNEL(name##_forward, void(View y, View a, View b));           \
  RT_KERNEL(name##_backward_a, void(View da, View a, View b, View dy)); \
  RT_KERNEL(name##_backward_b, void(View db, View a, View b, View dy));
RT_BINARY_OPS(X)
#undef X

}  // namespace ringtape
