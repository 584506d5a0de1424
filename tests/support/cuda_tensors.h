#pragma once
#include <vector>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "core/runtime.h"
#include "kernels/copy.h"
#include "kernels/fill.h"
#include "tests/support/cuda_support.h"
#include "tests/support/support.h"

// Operands for the tests of CUDA kernels.
namespace ringtape::test {

inline Tensor noise(const Shape& shape, DType dtype, uint64_t seed, double low = -2, double high = 2) {
  Tensor x(shape, dtype);
  fill_uniform(x, RandomState{seed, Stream::test, 0}, low, high);
  return x;
}

// (n) i64 in [0, below).
inline Tensor integers(int64_t n, int64_t below, uint64_t seed) {
  std::vector<int64_t> x(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) x[size_t(i)] = int64_t(philox(seed, 0, uint64_t(i)).x[0] % uint64_t(below));
  return from_host(x, {n});
}

// Contiguous x on the GPU; there `offset` elements into a buffer.
inline Tensor cuda(const Tensor& x) { return x.copy_to(kCuda); }
inline Tensor cuda(const Tensor& x, int64_t offset) {
  Tensor y = Tensor({x.size() + offset}, x.dtype(), kCuda).window(x.shape(), contiguous_strides(x.shape()), offset);
  runtime(kCuda).copy(View(y).data, kCuda, View(x).data, Device{}, size_t(x.size()) * size_of(x.dtype()));
  return y;
}

// A contiguous tensor that begins `offset` elements into its buffer, between guards that hold 77.
struct Guarded {
  Tensor whole, x;
  Guarded(const Tensor& host, int64_t offset) : whole(full({host.size() + offset + 8}, 77, host.dtype(), kCuda)) {
    x = whole.window(host.shape(), contiguous_strides(host.shape()), offset);
    copy(x, to(host, kCuda));
  }
  void expect_guards(int64_t offset) const {
    const std::vector<double> all = values(whole);
    for (int64_t i = 0; i < int64_t(all.size()); ++i) {
      const bool inside = i >= offset && i < offset + x.size();
      ASSERT_TRUE(inside || all[size_t(i)] == 77) << "written outside, at " << i - offset << " of " << x.size();
    }
  }
};

}  // namespace ringtape::test
