#pragma once
#include <cmath>

#include "core/again.h"
#include "kernels/kernel.h"

// One fused step over a flat buffer of parameters w and gradients g, both contiguous f32 or f64 of the same size. State
// tensors have that size and dtype and start at zero. PyTorch's formulas, in its order of operations. `factor` (f32,
// one element) multiplies g first; 0 means that nothing changes. Without data it is 1. `again` of a step (null: none)
// gives the numbers of later launches, if the call is recorded.
namespace ringtape {

struct SgdStep {
  double lr, momentum, weight_decay;
  bool nesterov;
  const Again<SgdStep>* again = nullptr;
};
// g += weight_decay w;  v = momentum v + g;  w -= lr (nesterov ? g + momentum v : v). v has no data if momentum is 0.
RT_KERNEL(sgd_step, void(View w, View v, View g, View factor, SgdStep step));

// LARS, layer-wise adaptive rates: SGD in which each parameter's step is scaled by its norm. You, Gitman and Ginsburg,
// "Large batch training of convolutional networks", 2017. The rule is that of solo-learn. Lightning Bolts and lightly
// differ only for weight decay 0: theirs then adapts nothing, this one still does.
struct LarsStep {
  double lr, momentum, weight_decay, eta;
  bool nesterov, clip;  // clip: the rate is the smaller of lr and the ratio, not their product
  int64_t first = 0;    // the element of the buffers at which w, v and g begin
  const Again<LarsStep>* again = nullptr;
};
// As sgd_step, with g + weight_decay w multiplied by the parameter's ratio from lars_scale. cells (C, 4) i64: begin and
// end of a run of elements in the buffers; the number of earlier cells of the same parameter; the parameter's number of
// cells, or 0 if it is not adapted (a bias, a norm's scale) and takes an SGD step without weight decay. w_squares,
// g_squares (C) f64: from parameter_squares, of all cells of these parameters, also before and after C.
RT_KERNEL(lars_step,
          void(View w, View v, View g, View w_squares, View g_squares, View cells, View factor, LarsStep step));
// sums (C) f64 = for the first cell of each adapted parameter, the sum of all its cells' squares (C), in their order;
// nothing for others.
RT_KERNEL(parameter_squares, void(View sums, View squares, View cells));

// Factors of a parameter's gradient and weight in its step, from the sums of their squares, for both devices: ratio =
// eta |w| / (|g| + weight_decay |w| + 1e-8); with clip min(ratio / lr, 1). If a norm is 0: ratio 1 and no decay.
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
  const Again<AdamStep>* again = nullptr;
};
// m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
// w -= lr m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps)
RT_KERNEL(adam_step, void(View w, View m, View v, View g, View factor, AdamStep step));

// average = decay average + (1 - decay) w, elementwise. Contiguous, same size and dtype, f32 or f64.
RT_KERNEL(ema_step, void(View average, View w, double decay));

}  // namespace ringtape
