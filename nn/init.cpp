#include "nn/init.h"

#include <cmath>

#include "autograd/create.h"
#include "autograd/tape.h"

namespace ringtape::nn {

Tensor uniform_fan_in(const Shape& shape, int64_t fan_in) {
  const double bound = fan_in > 0 ? 1 / std::sqrt(double(fan_in)) : 0;
  return leaf(rand(shape, -bound, bound));
}

Tensor normal_fan_out(const Shape& shape) {
  const int64_t fan_out = shape[0] * shape[1] * shape[2];
  return leaf(randn(shape, 0, fan_out > 0 ? std::sqrt(2 / double(fan_out)) : 0));
}

}  // namespace ringtape::nn
