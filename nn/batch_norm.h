#pragma once
#include "autograd/create.h"
#include "nn/module.h"

namespace ringtape::nn {

// Batch normalisation of x (..., C) over all axes but the last: of rows, and of images in NHWC. Names, initial values and updates as
// PyTorch's BatchNorm1d and BatchNorm2d. While training it normalises by the batch and keeps running statistics, by which it
// normalises in evaluation.
class BatchNorm : public Module {
 public:
  explicit BatchNorm(int64_t channels, double momentum = 0.1, double eps = 1e-5)
      : weight(leaf(ones({channels}))), bias(leaf(zeros({channels}))), momentum_(momentum), eps_(eps) {
    running_ = {zeros({channels}), ones({channels}), zeros({}, DType::i64)};
  }
  Tensor forward(const Tensor& x) override { return forward(x, Activation::none); }
  // f(normalised + residual), in one pass over memory.
  Tensor forward(const Tensor& x, Activation f, const Tensor& residual = {}) {
    // A 16-bit module computes with its parameters in f32, and keeps statistics in it: 16 bits would lose small updates.
    const DType dtype = weight.dtype() == DType::f64 ? DType::f64 : DType::f32;
    for (Tensor* t : {&running_.mean, &running_.var}) *t = cast(*t, dtype);
    return batch_norm(x, cast(weight, dtype), cast(bias, dtype), running_, {training(), momentum_, eps_}, f, residual);
  }
  using Module::operator();
  Tensor operator()(const Tensor& x, Activation f, const Tensor& residual = {}) { return seen(forward(x, f, residual)); }
  void visit(Visitor& v) override {
    v.parameter("weight", weight);
    v.parameter("bias", bias);
    v.buffer("running_mean", running_.mean);
    v.buffer("running_var", running_.var);
    v.buffer("num_batches_tracked", running_.batches);
  }
  std::string str() const override { return concat("BatchNorm(", weight.size(), ")"); }
  const RunningStatistics& running() const { return running_; }

  Tensor weight, bias;

 private:
  RunningStatistics running_;
  double momentum_, eps_;
};

}  // namespace ringtape::nn
