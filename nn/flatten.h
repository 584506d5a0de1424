#pragma once
#include "nn/module.h"

namespace ringtape::nn {

// (N, ...) -> (N, rest)
class Flatten : public Module {
 public:
  Tensor forward(const Tensor& x) override { return flatten(x); }
  std::string str() const override { return "Flatten"; }
};

}  // namespace ringtape::nn
