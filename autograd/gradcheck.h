#pragma once
#include <functional>
#include <string>

#include "core/tensor.h"

namespace ringtape {

// PyTorch's defaults.
struct GradcheckOptions {
  double eps = 1e-6;  // step of the central difference, times max(1, |x|)
  double atol = 1e-5, rtol = 1e-3;
  int64_t fast_above = 64;  // input elements; above it, fast mode
  int directions = 3;
  uint64_t seed = 0;
};

// Compares backward()'s gradients of f with central differences, for f64 inputs of any layout (others are passed
// unchanged). Slow mode compares the whole Jacobian, fast mode v^T J u for random u and v. Returns an empty string, or
// the largest difference. f must be smooth near the inputs and give the same result each time.
std::string gradcheck(const std::function<Tensor(const Tensors&)>& f, const Tensors& inputs,
                      const GradcheckOptions& options = {});

}  // namespace ringtape
