#pragma once
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
