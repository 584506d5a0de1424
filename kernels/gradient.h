#pragma once
#include "kernels/kernel.h"

// What is decided about the gradients of a step before the update, on their device: clipping, and the loss scale of f16.
namespace ringtape {

// y, f32 with one element, = the sum of x^2; x contiguous f32 or f64. In an order that x's size alone decides.
RT_KERNEL(square_sum, void(View y, View x));

struct GradientRule {
  double max_norm;         // 0: no clipping
  double growth, backoff;  // factors of the loss scale: after `interval` steps in succession without overflow, and on overflow
  int64_t interval;
};
// All f32 with one element, but scale (2): the loss scale that the gradients are multiplied by, and the steps since it last changed; no
// data for 1. squares: the sum of the gradients' squares.
//   norm   = sqrt(squares) / scale
//   factor = min(1, max_norm / (norm + 1e-6)) / scale, which undoes the scale and clips as PyTorch's clip_grad_norm_ does
// If norm is not finite, factor is 0 and the scale shrinks; without a scale it is NaN, so that the mistake shows.
RT_KERNEL(gradient_factor, void(View factor, View norm, View scale, View squares, GradientRule rule));

// The rule itself, for both devices.
struct GradientDecision {
  float norm, factor, scale, steps;
};
// root: of the sum of squares; scale and steps: what scale holds, 1 and 0 without one.
RT_HD inline GradientDecision decide_gradient(const GradientRule& rule, float root, bool scaled, float scale, float steps) {
  const float norm = root / scale, most = float(rule.max_norm);
  if (!(norm - norm == 0)) return {norm, scaled ? 0 : norm - norm, scale * float(rule.backoff), 0};
  const float clip = most > 0 && norm + 1e-6f > most ? most / (norm + 1e-6f) : 1.0f;
  const bool grow = steps + 1 >= float(rule.interval);
  return {norm, clip / scale, grow ? scale * float(rule.growth) : scale, grow ? 0 : steps + 1};
}

}  // namespace ringtape
