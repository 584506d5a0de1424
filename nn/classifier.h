#pragma once
#include <string>

#include "core/tensor.h"

namespace ringtape::nn {

// A network that ends in one linear layer. The input of that layer, the features of an image, can serve other tasks.
class Classifier {
 public:
  virtual ~Classifier() = default;
  virtual Tensor features(const Tensor& x) = 0;  // (N, H, W, C) -> (N, F): the input of the last layer
  virtual std::string last_layer() const = 0;    // its name: "fc"
};

}  // namespace ringtape::nn
