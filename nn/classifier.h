#pragma once
#include <string>

#include "core/tensor.h"

namespace ringtape::nn {

// A network that ends in one linear layer, and what comes before it: the features of an image, which serve other tasks too.
class Classifier {
 public:
  virtual ~Classifier() = default;
  virtual Tensor features(const Tensor& x) = 0;  // (N, H, W, C) -> (N, F): what the last layer gets
  virtual std::string last_layer() const = 0;    // its name: "fc"
};

}  // namespace ringtape::nn
