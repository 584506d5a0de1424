#pragma once
#include "core/random.h"
#include "core/tensor.h"

// PyTorch's default initialisations, as leaves. They draw from default_generator() (autograd/create.h).
namespace ringtape::nn {

// Uniform in +-1/sqrt(fan_in): equals kaiming_uniform_(a=sqrt(5)) for weights, and is the rule for biases.
Tensor uniform_fan_in(const Shape& shape, int64_t fan_in);

}  // namespace ringtape::nn
