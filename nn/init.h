#pragma once
#include "core/random.h"
#include "core/tensor.h"

// PyTorch's default initialisations, as leaves. Each draws from default_generator() (autograd/create.h).
namespace ringtape::nn {

// Uniform in +-1/sqrt(fan_in): what kaiming_uniform_(a=sqrt(5)) comes to for weights, and the rule for biases.
Tensor uniform_fan_in(const Shape& shape, int64_t fan_in);

}  // namespace ringtape::nn
