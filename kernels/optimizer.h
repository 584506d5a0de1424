#pragma once
#include <cmath>

#include "kernels/kernel.h"

// One fused step over a flat buffer of parameters w and gradients g, both contiguous f32 or f64 of one size. State
// tensors have that size and dtype and start at zero. PyTorch's formulas, in its order of operations. `factor`, f32 with one
// element, is what g is multiplied by first, and 0 means that nothing changes; without data it is 1.
namespace ringtape {

struct SgdStep {
  double lr, momentum, weight_decay;
  bool nesterov;
};
// g += weight_decay w;  v = momentum v + g;  w -= lr (nesterov ? g + momentum v : v). v has no data for momentum 0.
RT_KERNEL(sgd_step, void(View w, View v, View g, View factor, SgdStep step));

// Layer-wise adaptive rates: SGD, with each parameter's step as long as its own norm allows. You, Gitman and Ginsburg, "Large batch
// training of convolutional networks", 2017; the rule is that of solo-learn, and of Lightning Bolts and lightly but for
// weight decay 0, where theirs adapts nothing and this one still does.
struct LarsStep {
  double lr, momentum, weight_decay, eta;
  bool nesterov, clip;  // clip: the smaller one of lr and the ratio is the rate, not their product
};
// Parameters are taken in chunks, (C, 4) i64: elements [begin, end) of the buffers; how many chunks of the same parameter lie before
// it; how many it has, or 0 for a parameter that is not adapted (a bias, a norm's scale), whose step is SGD's without weight decay.
// squares (C, 2), f64: those of w and of g, summed over each chunk in an order that its size alone decides.
RT_KERNEL(lars_squares, void(View squares, View w, View g, View chunks));
// As sgd_step, with g + weight_decay w multiplied by lars_scale's ratio for the parameter it belongs to.
RT_KERNEL(lars_step, void(View w, View v, View g, View squares, View chunks, View factor, LarsStep step));

// What gradient and weight of a parameter go into its step with, from the sums of their squares, for both devices:
// ratio = eta |w| / (|g| + weight_decay |w| + 1e-8), clipped to min(ratio / lr, 1). Where a norm is 0: 1, and no decay.
struct LarsScale {
  double gradient, weight;
};
RT_HD inline LarsScale lars_scale(const LarsStep& s, double w_squares, double g_squares, double factor) {
  const double w = std::sqrt(w_squares), g = factor * std::sqrt(g_squares);
  if (w == 0 || g == 0) return {factor, 0};
  double ratio = s.eta * w / (g + s.weight_decay * w + 1e-8);
  if (s.clip) ratio = ratio < s.lr ? ratio / s.lr : 1;
  return {ratio * factor, ratio * s.weight_decay};
}

struct AdamStep {
  double lr, beta1, beta2, eps, weight_decay;
  bool decoupled;  // AdamW: w -= lr weight_decay w, instead of adding weight_decay w to g
  int64_t number;  // 1 for the first step
};
// m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
// w -= lr m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps)
RT_KERNEL(adam_step, void(View w, View m, View v, View g, View factor, AdamStep step));

// average = decay average + (1 - decay) w, elementwise: contiguous, of one size and dtype, f32 or f64.
RT_KERNEL(ema_step, void(View average, View w, double decay));

}  // namespace ringtape
