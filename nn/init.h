#pragma once
#include <cstdint>

#include "core/random.h"
#include "core/tensor.h"

// Initialisations, as leaves. They draw from default_generator() (autograd/create.h).
namespace ringtape::nn {

// Uniform in +-1/sqrt(fan_in): equals kaiming_uniform_(a=sqrt(5)) for weights, and is the rule for biases. PyTorch's
// default.
Tensor uniform_fan_in(const Shape& shape, int64_t fan_in);

// Normal with variance 2 / (K R S), for weights (K, R, S, C) of a convolution: equals kaiming_normal_(mode="fan_out").
// He et al., "Delving deep into rectifiers", 2015.
Tensor normal_fan_out(const Shape& shape);

// uniform_fan_in, but the first filters of weights (K, R, S, C) pass channel k on to output k, for k below K and C: 1
// in the middle, 0 elsewhere. Equals dirac_(w[:C]) in PyTorch.
Tensor dirac(const Shape& shape);

// N(0, 0.02^2), with which transformers begin: timm's trunc_normal_, whose bounds are a hundred deviations away.
Tensor small_normal(const Shape& shape);

// While one lives, these functions draw nothing on its thread and return uninitialised tensors: for networks all of
// whose weights come from a file.
class NoInit {
 public:
  NoInit();
  ~NoInit();
  NoInit(const NoInit&) = delete;
  NoInit& operator=(const NoInit&) = delete;

 private:
  bool before_;
};

enum class Init : uint8_t { uniform_fan_in, normal_fan_out, dirac };

}  // namespace ringtape::nn
