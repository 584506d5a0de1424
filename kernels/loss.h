#pragma once
#include "kernels/kernel.h"

// The complete definition of every elementwise loss, one row each:
//   name, value(x, t), d/dx, d/dt
// x: the prediction, t: the target, q: the parameter of the loss (beta, delta, or the weight of positive targets). M
// holds the elementary functions of the device, T is float or double. At a kink the slope is PyTorch's,
// as is NaN where x or t is.
// clang-format off
#define RT_LOSSES(X)                                                                                            \
  X(mse,       (x - t) * (x - t),                                                                               \
               2 * (x - t),                                                                                     \
               2 * (t - x))                                                                                     \
  X(l1,        M::abs(x - t),                                                                                   \
               x > t ? T(1) : x < t ? T(-1) : T(0),                                                             \
               x > t ? T(-1) : x < t ? T(1) : T(0))                                                             \
  X(smooth_l1, M::abs(x - t) < q ? T(0.5) * (x - t) * (x - t) / q : M::abs(x - t) - T(0.5) * q,                 \
               M::abs(x - t) < q ? (x - t) / q : x > t ? T(1) : x < t ? T(-1) : x - t,                          \
               M::abs(x - t) < q ? (t - x) / q : x > t ? T(-1) : x < t ? T(1) : t - x)                          \
  X(huber,     M::abs(x - t) <= q ? T(0.5) * (x - t) * (x - t) : q * (M::abs(x - t) - T(0.5) * q),              \
               M::abs(x - t) <= q ? x - t : x > t ? q : x < t ? -q : x - t,                                     \
               M::abs(x - t) <= q ? t - x : x > t ? -q : x < t ? q : t - x)                                     \
  X(bce,       (1 - t) * x + (1 + (q - 1) * t) * (M::log1p(M::exp(-M::abs(x))) + (x < 0 ? -x : T(0))),          \
               (1 + (q - 1) * t) / (1 + M::exp(-x)) - q * t,                                                    \
               (q - 1) * M::log1p(M::exp(-M::abs(x))) - (x < 0 ? q * x : x))                                    \
  X(kl,        t == 0 ? T(0) : t * (M::log(t) - x),                                                             \
               -t,                                                                                              \
               t == 0 ? T(0) : M::log(t) + 1 - x)                                                               \
  X(kl_of_log, M::exp(t) * (t - x),                                                                             \
               -M::exp(t),                                                                                      \
               M::exp(t) * (t - x + 1))
// clang-format on

namespace ringtape {

enum class Loss : uint8_t {
#define X(name, ...) name,
  RT_LOSSES(X)
#undef X
};
enum class LossPart : uint8_t { value, to_input, to_target };

// A loss with its attributes. The result is divided by `divisor`, which may be 0.
struct LossRule {
  Loss loss;
  double q = 0, divisor = 1;
};

// y = the loss of each element of x, or, if y has one element, their sum, in an order that depends only on the shape.
// x and t have one floating dtype and shape, and any strides; y is contiguous and f32, or f64 for f64. w, which
// multiplies the losses, and q, which stands for the rule's, are like x (strides may be 0), or have no data.
RT_KERNEL(loss_forward, void(View y, View x, View t, View w, View q, LossRule rule));

// dto = dL/dx or dL/dt, contiguous and of x's dtype and shape, from dy = dL/dy of x's shape (f32 or f64, any strides).
RT_KERNEL(loss_backward, void(View dto, View dy, View x, View t, View w, View q, LossRule rule, LossPart part));

}  // namespace ringtape
