#pragma once
#include "kernels/gradient.h"
#include "train/optim/flat_parameters.h"

namespace ringtape {

// What a step does to its gradients before the update, decided on their device without waiting for it: with f16, the
// loss is scaled up so that small gradients stay above what f16 can hold, and a step whose gradients overflowed is left
// out; with a largest norm, all gradients together are clipped to it. PyTorch's GradScaler and clip_grad_norm_. A step
// left out counts as one.
class GradientScale {
 public:
  struct Options {
    double max_norm = 0;  // 0: no clipping
    bool dynamic = false;  // a loss scale
  };
  GradientScale(FlatParameters& parameters, Options options);

  bool dynamic() const { return scale_.defined(); }
  bool active() const { return dynamic() || rule_.max_norm > 0; }

  // What backward() is to start from, (): `share` times the loss scale.
  Tensor seed(double share, DType dtype = DType::f32) const;

  // Looks at the gradients; the factor (1) for Optimizer::step.
  const Tensor& factor();

  const Tensor& norm() const { return norm_; }    // (1), of the gradients last looked at, before clipping
  // (2): the loss scale, and the steps since it changed; undefined without one.
  const Tensor& state() const { return scale_; }

 private:
  FlatParameters& parameters_;
  GradientRule rule_;
  Tensor scale_, norm_, factor_;
};

}  // namespace ringtape
