#pragma once
#include "nn/module.h"

namespace ringtape::nn {

class ReLU : public Module {
 public:
  Tensor forward(const Tensor& x) override { return relu(x); }
  std::string str() const override { return "ReLU"; }
};

class Tanh : public Module {
 public:
  Tensor forward(const Tensor& x) override { return tanh(x); }
  std::string str() const override { return "Tanh"; }
};

// The exact function, x Phi(x).
class GELU : public Module {
 public:
  Tensor forward(const Tensor& x) override { return gelu(x); }
  std::string str() const override { return "GELU"; }
};

}  // namespace ringtape::nn
