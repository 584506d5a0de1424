#include "nn/init.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "autograd/create.h"
#include "autograd/tape.h"

namespace ringtape::nn {

static constinit thread_local bool no_init = false;

NoInit::NoInit() : before_(std::exchange(no_init, true)) {}
NoInit::~NoInit() { no_init = before_; }

Tensor uniform_fan_in(const Shape& shape, int64_t fan_in) {
  if (no_init) return leaf(Tensor(shape));
  const double bound = fan_in > 0 ? 1 / std::sqrt(double(fan_in)) : 0;
  return leaf(rand(shape, -bound, bound));
}

static Tensor normal(const Shape& shape, double deviation) {
  return leaf(no_init ? Tensor(shape) : randn(shape, 0, deviation));
}

Tensor normal_fan_out(const Shape& shape) {
  const int64_t fan_out = shape[0] * shape[1] * shape[2];
  return normal(shape, fan_out > 0 ? std::sqrt(2 / double(fan_out)) : 0);
}

Tensor small_normal(const Shape& shape) { return normal(shape, 0.02); }

Tensor dirac(const Shape& shape) {
  const int64_t rows = shape[1], columns = shape[2], channels = shape[3], filter = rows * columns * channels;
  const Tensor out = uniform_fan_in(shape, filter);
  if (no_init) return out;
  float* const w = out.detach().data<float>();
  for (int64_t k = 0; k < std::min(shape[0], channels); ++k) {
    std::fill_n(w + k * filter, filter, 0.0f);
    w[k * filter + (rows / 2 * columns + columns / 2) * channels + k] = 1;
  }
  return out;
}

}  // namespace ringtape::nn
