#pragma once
#include "nn/init.h"
#include "nn/module.h"

namespace ringtape::nn {

// y = x w^T + b for x (..., in), weight (out, in), bias (out).
class Linear : public Module {
 public:
  Linear(int64_t in, int64_t out, bool with_bias = true) : weight(uniform_fan_in({out, in}, in)) {
    if (with_bias) bias = uniform_fan_in({out}, in);
  }
  Linear(const Tensor& w, const Tensor& b) : weight(w), bias(b) {}  // leaves
  // As transformers begin: the weight is small_normal, the bias 0.
  static Linear small(int64_t in, int64_t out) { return {small_normal({out, in}), leaf(zeros({out}))}; }
  Tensor forward(const Tensor& x) override { return linear(x, weight, bias); }
  void visit(Visitor& v) override {
    v.parameter("weight", weight);
    if (bias.defined()) v.parameter("bias", bias);
  }
  std::string str() const override {
    return concat("Linear(", weight.shape()[1], " -> ", weight.shape()[0], bias.defined() ? "" : ", no bias", ")");
  }

  Tensor weight, bias;
};

}  // namespace ringtape::nn
