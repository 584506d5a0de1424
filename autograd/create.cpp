#include "autograd/create.h"

#include "kernels/fill.h"

namespace ringtape {

Tensor full(const Shape& shape, double value, DType dtype, Device device) {
  Tensor x(shape, dtype, device);
  fill(x, value);
  return x;
}

Tensor ones(const Shape& shape, DType dtype, Device device) { return full(shape, 1, dtype, device); }

Tensor arange(int64_t n, DType dtype, Device device) {
  Tensor x({n}, dtype, device);
  fill_range(x);
  return x;
}

Tensor rand(const Shape& shape, double low, double high, DType dtype, Device device) {
  Tensor x(shape, dtype, device);
  fill_uniform(x, default_generator().reserve(x.size()), low, high);
  return x;
}

Tensor randn(const Shape& shape, double mean, double deviation, DType dtype, Device device) {
  Tensor x(shape, dtype, device);
  fill_normal(x, default_generator().reserve(x.size()), mean, deviation);
  return x;
}

Generator& default_generator() {
  static thread_local Generator generator;
  return generator;
}

void manual_seed(uint64_t seed) { default_generator() = Generator(seed); }

}  // namespace ringtape
