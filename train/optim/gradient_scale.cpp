#include "train/optim/gradient_scale.h"

#include "autograd/create.h"
#include "autograd/ops.h"
#include "kernels/reduce.h"

namespace ringtape {

constexpr float kFirstScale = 65536;  // PyTorch's initial scale

GradientScale::GradientScale(FlatParameters& parameters, Options options)
    : parameters_(parameters), rule_{.max_norm = options.max_norm, .growth = 2, .backoff = 0.5, .interval = 2000} {
  const Device device = parameters.values().device();
  norm_ = zeros({1}, DType::f32, device), factor_ = zeros({1}, DType::f32, device);
  if (options.dynamic) scale_ = from_host(std::vector<float>{kFirstScale, 0}, {2}, device);
}

Tensor GradientScale::seed(double share, DType dtype) const {
  const Tensor shared = full({}, share, dtype, factor_.device());
  return dynamic() ? scale_.window({}, {}) * shared : shared;
}

const Tensor& GradientScale::factor() {
  const std::vector<FlatParameters::Run> runs = parameters_.with_gradient();
  Tensor squares({int64_t(runs.size())}, DType::f32, factor_.device());
  for (size_t i = 0; i < runs.size(); ++i) {
    const int64_t n = runs[i].end - runs[i].begin;
    square_sum(squares.window({1}, {1}, int64_t(i)), parameters_.gradients().window({n}, {1}, runs[i].begin));
  }
  if (runs.size() != 1) {
    const Tensor all({1}, DType::f32, factor_.device());
    sum_forward(all, squares);
    squares = all;
  }
  gradient_factor(factor_, norm_, scale_.defined() ? View(scale_) : View{}, squares, rule_);
  return factor_;
}

}  // namespace ringtape
