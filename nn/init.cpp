#include "nn/init.h"

#include <cmath>

#include "autograd/create.h"
#include "autograd/tape.h"

namespace ringtape::nn {

Tensor uniform_fan_in(const Shape& shape, int64_t fan_in) {
  const double bound = fan_in > 0 ? 1 / std::sqrt(double(fan_in)) : 0;
  return leaf(rand(shape, -bound, bound));
}

}  // namespace ringtape::nn
