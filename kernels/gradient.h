#pragma once
#include "kernels/kernel.h"

// Decisions about the gradients of a step before the update, on their device: clipping, and the loss scale of f16.
namespace ringtape {

// Sums of squares of runs of a flat buffer x, contiguous f32 or f64: squares (C) f64; cells (C, >= 2) i64, in whose
// first columns are begin and end of each run, counted from `first`, the element at which x begins. The order of a sum
// depends only on the length of its run.
RT_KERNEL(cell_squares, void(View squares, View x, View cells, int64_t first));

struct GradientRule {
  double max_norm;  // 0: no clipping
  double growth,
      backoff;  // factors of the loss scale: after `interval` consecutive steps without overflow, and on overflow
  int64_t interval;
};
// factor, norm: f32 with one element. scale (2) f32: the loss scale in the gradients and the steps since its last
// change; no data: scale 1. squares (C) f64: sums of the gradients' squares, added in an order that depends only on C.
//   norm   = sqrt(sum of squares) / scale
//   factor = min(1, max_norm / (norm + 1e-6)) / scale: undoes the scale, and clips like PyTorch's clip_grad_norm_
// If norm is not finite, factor is 0 and the scale shrinks. Without a scale, factor is NaN, so that the error is
// visible.
RT_KERNEL(gradient_factor, void(View factor, View norm, View scale, View squares, GradientRule rule));

// The rule itself, for both devices.
struct GradientDecision {
  float norm, factor, scale, steps;
};
// root: of the sum of squares. scale, steps: the two elements of `scale`; 1 and 0 if it has no data.
RT_HD inline GradientDecision decide_gradient(const GradientRule& rule, float root, bool scaled, float scale,
                                              float steps) {
  const float norm = root / scale, most = float(rule.max_norm);
  if (!(norm - norm == 0)) return {norm, scaled ? 0 : norm - norm, scale * float(rule.backoff), 0};
  const float clip = most > 0 && norm + 1e-6f > most ? most / (norm + 1e-6f) : 1.0f;
  const bool grow = steps + 1 >= float(rule.interval);
  return {norm, clip / scale, grow ? scale * float(rule.growth) : scale, grow ? 0 : steps + 1};
}

}  // namespace ringtape
