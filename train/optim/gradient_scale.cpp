#include "train/optim/gradient_scale.h"

#include "autograd/create.h"
#include "autograd/ops.h"
#include "kernels/gradient.h"

namespace ringtape {

constexpr float kFirstScale = 65536;  // PyTorch's initial scale

GradientScale::GradientScale(Device device, Options options) : max_norm_(options.max_norm) {
  norm_ = zeros({1}, DType::f32, device), factor_ = zeros({1}, DType::f32, device);
  if (options.dynamic) scale_ = from_host(std::vector<float>{kFirstScale, 0}, {2}, device);
}

Tensor GradientScale::seed(double share, DType dtype) const {
  const Tensor shared = full({}, share, dtype, factor_.device());
  return dynamic() ? scale_.window({}, {}) * shared : shared;
}

const Tensor& GradientScale::factor(const Tensor& squares) {
  gradient_factor(factor_, norm_, scale_.defined() ? View(scale_) : View{}, squares,
                  {.max_norm = max_norm_, .growth = 2, .backoff = 0.5, .interval = 2000});
  return factor_;
}

}  // namespace ringtape
