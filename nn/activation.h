#pragma once
#include "nn/module.h"

// The elementwise functions of autograd/ops.h as modules, by PyTorch's names. GELU is the exact one, x Phi(x).
namespace ringtape::nn {

#define RT_ACTIVATION(Name, function)                                \
  class Name : public Module {                                       \
   public:                                                           \
    Tensor forward(const Tensor& x) override { return function(x); } \
    std::string str() const override { return #Name; }               \
  };
RT_ACTIVATION(ReLU, relu)
RT_ACTIVATION(GELU, gelu)
RT_ACTIVATION(SELU, selu)
RT_ACTIVATION(SiLU, silu)
RT_ACTIVATION(Mish, mish)
RT_ACTIVATION(Softplus, softplus)
RT_ACTIVATION(Sigmoid, sigmoid)
RT_ACTIVATION(LogSigmoid, log_sigmoid)
RT_ACTIVATION(Tanh, tanh)
RT_ACTIVATION(Hardsigmoid, hardsigmoid)
RT_ACTIVATION(Hardswish, hardswish)
#undef RT_ACTIVATION

class LeakyReLU : public Module {
 public:
  explicit LeakyReLU(double slope = 0.01) : slope_(slope) {}
  Tensor forward(const Tensor& x) override { return leaky_relu(x, slope_); }
  std::string str() const override { return concat("LeakyReLU(slope=", slope_, ")"); }

 private:
  double slope_;
};

class ELU : public Module {
 public:
  explicit ELU(double alpha = 1) : alpha_(alpha) {}
  Tensor forward(const Tensor& x) override { return elu(x, alpha_); }
  std::string str() const override { return concat("ELU(alpha=", alpha_, ")"); }

 private:
  double alpha_;
};

}  // namespace ringtape::nn
