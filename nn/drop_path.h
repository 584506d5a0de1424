#pragma once
#include "autograd/create.h"
#include "nn/module.h"

namespace ringtape::nn {

// Stochastic depth: in training, zeroes whole samples (N, ...) of a residual branch with probability p and scales the
// others by 1 / (1 - p). Huang et al., "Deep networks with stochastic depth", 2016; timm's DropPath.
class DropPath : public Module {
 public:
  explicit DropPath(double p) : p_(p) {
    RT_CHECK_AS(UsageError, p >= 0 && p <= 1, "DropPath: probability ", p, " is not in [0, 1]");
  }
  Tensor forward(const Tensor& x) override {
    if (!training() || p_ == 0) return x;
    Shape samples;
    for (int i = 0; i < x.rank(); ++i) samples.append(i == 0 ? x.dim(0) : 1);
    return x * dropout(ones(samples, x.dtype(), x.device()), p_);
  }
  std::string str() const override { return concat("DropPath(", p_, ")"); }

 private:
  double p_;
};

}  // namespace ringtape::nn
