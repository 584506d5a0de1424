#include "autograd/create.h"

#include <limits>

#include "kernels/fill.h"

namespace ringtape {

static double largest_of(DType dtype) {
  switch (dtype) {
    case DType::f16: return 65504;
    case DType::bf16: return 0x1.fep127;
    case DType::f32: return std::numeric_limits<float>::max();
    default: return std::numeric_limits<double>::max();
  }
}

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
  RT_CHECK_AS(DTypeError, is_float(dtype), "rand: needs a floating-point dtype, got ", dtype);
  const double largest = largest_of(dtype);
  RT_CHECK_AS(UsageError, -largest <= low && low <= high && high <= largest && high - low <= largest,
              "rand: from ", low, " to ", high, "; expected low <= high, at most ", largest, " (", dtype, ") apart");
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
