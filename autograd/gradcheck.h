#pragma once
#include <functional>
#include <string>

#include "core/tensor.h"

namespace ringtape {

// PyTorch's defaults.
struct GradcheckOptions {
  double eps = 1e-6;          // step of the central difference, times max(1, |x|)
  double atol = 1e-5, rtol = 1e-3;
  int64_t fast_above = 64;    // elements of input; beyond it random directions instead of every element
  int directions = 3;
  uint64_t seed = 0;
};

// Compares the gradients that backward() gives for f with central differences, for f64 inputs of any layout (others are
// passed on as they are). Slow mode compares the whole Jacobian, fast mode v^T J u for random u and v. Returns an
// empty string, or what differs most. f must be smooth near the inputs and give the same result each time.
std::string gradcheck(const std::function<Tensor(const Tensors&)>& f, const Tensors& inputs, const GradcheckOptions& options = {});

}  // namespace ringtape
