#pragma once
#include "nn/module.h"

namespace ringtape::nn {

// (N, ...) -> (N, rest). Of images (N, H, W, C) the rest is in the order H, W, C, where PyTorch's is C, H, W: a linear
// layer behind it whose weights come from there needs flatten(to_nchw(x)).
class Flatten : public Module {
 public:
  Tensor forward(const Tensor& x) override { return flatten(x); }
  std::string str() const override { return "Flatten"; }
};

}  // namespace ringtape::nn
