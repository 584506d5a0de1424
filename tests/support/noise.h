#pragma once
#include "core/tensor.h"
#include "kernels/fill.h"

namespace ringtape::test {

// Normal numbers in f64, the same for the same seed.
inline Tensor noise(const Shape& shape, uint64_t seed, double mean = 0, double deviation = 1) {
  Tensor x(shape, DType::f64);
  fill_normal(x, RandomState{seed, Stream::test, 0}, mean, deviation);
  return x;
}

}  // namespace ringtape::test
