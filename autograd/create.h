#pragma once
#include <concepts>

#include "core/random.h"
#include "core/tensor.h"

// Functions that create tensors. `zeros` and `from_host` are in core/tensor.h.
namespace ringtape {

Tensor full(const Shape& shape, double value, DType dtype = DType::f32, Device device = {});
Tensor ones(const Shape& shape, DType dtype = DType::f32, Device device = {});
Tensor arange(int64_t n, DType dtype = DType::i64, Device device = {});  // 0, 1, ... n - 1
// first, first + step, ... as far as `end`, which is not among them. Integers need a whole first and step, and a dtype
// that holds them all.
Tensor arange(double first, double end, double step = 1, DType dtype = DType::i64, Device device = {});
template <std::floating_point T>
Tensor arange(T end, DType dtype = DType::f32, Device device = {}) {  // arange(2.5) is 0, 1, 2
  return arange(0, double(end), 1, dtype, device);
}
// n numbers at equal distances from first to last; both ends are exact.
Tensor linspace(double first, double last, int64_t n, DType dtype = DType::f32, Device device = {});

// Uniform in [low, high), never high in any dtype, with 24 random bits (f64: 53); normal with the given mean and
// deviation, each from 32 bits. The same numbers on every device.
Tensor rand(const Shape& shape, double low = 0, double high = 1, DType dtype = DType::f32, Device device = {});
Tensor randn(const Shape& shape, double mean = 0, double deviation = 1, DType dtype = DType::f32, Device device = {});

// The generator of rand, randn, dropout and initialisation if no state is given: one per thread, seeded with 0.
Generator& default_generator();
void manual_seed(uint64_t seed);

namespace detail {
// Throws UsageError, naming `op`, for a number that a whole dtype does not hold.
void check_number(const char* op, double value, DType dtype);
}  // namespace detail

}  // namespace ringtape
