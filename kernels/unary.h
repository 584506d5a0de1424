#pragma once
#include "kernels/elementwise_ops.h"
#include "kernels/kernel.h"

namespace ringtape::unary {

enum class Needs : uint8_t { nothing, x_alone, x_again, y_alone, x_and_y };

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
