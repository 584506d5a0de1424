#pragma once
#include "kernels/elementwise_ops.h"
#include "kernels/kernel.h"

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
