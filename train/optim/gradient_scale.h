#pragma once
#include "core/tensor.h"

namespace ringtape {

// What a step does to its gradients before the update, decided on the device without waiting for it. With f16, of the
// network or of what ranks send, the loss is scaled up so that small gradients do not underflow, and a step whose
// gradients overflowed is skipped. With a maximum norm, all gradients together are clipped to it. As PyTorch's
// GradScaler and clip_grad_norm_. A skipped step is counted.
class GradientScale {
 public:
  struct Options {
    double max_norm = 0;   // 0: no clipping
    bool dynamic = false;  // use a loss scale
  };
  GradientScale(Device device, Options options);

  bool dynamic() const { return scale_.defined(); }
  bool active() const { return dynamic() || max_norm_ > 0; }

  // The gradient that backward() starts from, (): `share` times the loss scale.
  Tensor seed(double share, DType dtype = DType::f32) const;

  // The factor (1) for Optimizer::step; `squares` (C): sums of the gradients' squares (FlatParameters).
  const Tensor& factor(const Tensor& squares);

  const Tensor& norm() const { return norm_; }  // (1), of the gradients last examined, before clipping
  // (2): the loss scale, and the steps since it changed; undefined without a loss scale.
  const Tensor& state() const { return scale_; }

 private:
  const double max_norm_;
  Tensor scale_, norm_, factor_;
};

}  // namespace ringtape
