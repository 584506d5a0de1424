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

enum class Init : uint8_t { uniform_fan_in, normal_fan_out };

}  // namespace ringtape::nn
