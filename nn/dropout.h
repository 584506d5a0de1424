#pragma once
#include "nn/module.h"

namespace ringtape::nn {

// In training, zeroes each element with probability p and scales the others by 1 / (1 - p).
class Dropout : public Module {
 public:
  explicit Dropout(double p = 0.5) : p_(p) {
    RT_CHECK_AS(UsageError, p >= 0 && p <= 1, "Dropout: probability ", p, " is not in [0, 1]");
  }
  Tensor forward(const Tensor& x) override { return training() ? dropout(x, p_) : x; }
  std::string str() const override { return concat("Dropout(", p_, ")"); }

 private:
  double p_;
};

}  // namespace ringtape::nn
