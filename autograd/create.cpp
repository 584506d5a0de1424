#include "autograd/create.h"

#include <algorithm>
#include <cmath>
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

// Whether numbers from `first` to `last` are among those of u8, i32 or i64; of other types they always are.
static bool holds(DType dtype, double first, double last) {
  double low = -0x1p63, high = 0x1p63 - 1024;  // the largest double below 2^63
  if (dtype == DType::i32) low = INT32_MIN, high = INT32_MAX;
  if (dtype == DType::u8) low = 0, high = UINT8_MAX;
  const bool whole = dtype == DType::u8 || dtype == DType::i32 || dtype == DType::i64;
  return !whole || (std::min(first, last) >= low && std::max(first, last) <= high);  // false for a NaN
}
static void check_range(double first, double last, DType dtype) {
  RT_CHECK_AS(UsageError, holds(dtype, first, last), "arange: from ", first, " to ", last, ", which ", dtype,
              " does not hold; give a wider dtype");
}
void detail::check_number(const char* op, double value, DType dtype) {
  RT_CHECK_AS(UsageError, holds(dtype, value, value), op, ": ", value, ", which ", dtype,
              " does not hold; give another dtype");
}

Tensor full(const Shape& shape, double value, DType dtype, Device device) {
  detail::check_number("full", value, dtype);
  Tensor x(shape, dtype, device);
  fill(x, value);
  return x;
}

Tensor ones(const Shape& shape, DType dtype, Device device) { return full(shape, 1, dtype, device); }

Tensor arange(int64_t n, DType dtype, Device device) {
  if (n > 0) check_range(0, double(n - 1), dtype);
  Tensor x({n}, dtype, device);
  fill_range(x, 0, 1);
  return x;
}

Tensor arange(double first, double end, double step, DType dtype, Device device) {
  const double count = std::ceil((end - first) / step);
  RT_CHECK_AS(UsageError, std::isfinite(first) && std::isfinite(step) && count >= 0 && count < 0x1p53, "arange: from ",
              first, " to ", end, " in steps of ", step);
  RT_CHECK_AS(DTypeError, is_float(dtype) || (first == std::trunc(first) && step == std::trunc(step)), "arange: from ",
              first, " in steps of ", step, " of ", dtype, "; give a floating dtype");
  if (count > 0) check_range(first, first + (count - 1) * step, dtype);
  Tensor x({int64_t(count)}, dtype, device);
  fill_range(x, first, step);
  return x;
}

Tensor linspace(double first, double last, int64_t n, DType dtype, Device device) {
  RT_CHECK_AS(UsageError, n >= 0 && is_float(dtype), "linspace: ", n, " numbers of ", dtype,
              "; expected at least 0, of a floating dtype");
  const double largest = largest_of(dtype);
  RT_CHECK_AS(UsageError, std::fabs(first) <= largest && std::fabs(last) <= largest, "linspace: from ", first, " to ",
              last, "; expected at most ", largest, " (", dtype, ")");
  Tensor x({n}, dtype, device);
  // The second half from the end, so that both ends are exact.
  double step = n > 2 ? (last - first) / double(n - 1) : 0;
  if (!std::isfinite(step)) step = last / double(n - 1) - first / double(n - 1);
  const int64_t half = (n + 1) / 2;
  fill_range(x.window({half}, {1}), first, step);
  if (n > 1) fill_range(x.window({n - half}, {-1}, n - 1), last, -step);
  return x;
}

Tensor rand(const Shape& shape, double low, double high, DType dtype, Device device) {
  RT_CHECK_AS(DTypeError, is_float(dtype), "rand: needs a floating-point dtype, got ", dtype);
  const double largest = largest_of(dtype);
  RT_CHECK_AS(UsageError, -largest <= low && low <= high && high <= largest && high - low <= largest, "rand: from ",
              low, " to ", high, "; expected low <= high, at most ", largest, " (", dtype, ") apart");
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
