#pragma once
#include <array>

#include "core/tensor.h"

namespace ringtape {

// The rows of `x`, f32 (N, F) on any device, N >= 2, on their two principal components: f32 (N, 2) on cpu:0. The
// largest coordinate of each is positive. `explained` gets the share of the variance of each.
Tensor principal_components(const Tensor& x, std::array<double, 2>& explained);

}  // namespace ringtape
