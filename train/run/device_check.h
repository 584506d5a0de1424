#pragma once
#include <cstdint>
#include <exception>
#include <functional>
#include <string>

#include "core/tensor.h"

// Whether GPUs compute what the CPU does.
namespace ringtape {

struct DeviceCheck {
  std::string name;    // "cuda:0 product bf16"
  std::string result;  // what was found; of a failure what was expected and what came, or the error
  bool passed;
  bool skipped = false;  // there was nothing to check
};

using DeviceCheckFn = std::function<void(const DeviceCheck&)>;

// Runs a check. One that throws has failed, with the error as its result.
template <class F> DeviceCheck run_check(const std::string& name, F&& f) {
  try {
    return {name, f(), true};
  } catch (const std::exception& e) {
    return {name, e.what(), false};
  }
}

// Of each GPU: a copy there and back, a kernel, a product and a convolution with its gradients in the dtypes that
// trainings use, compared with the CPU's in f64; the same in bf16 by our own kernels, where libraries computed them; a
// residual block by fused kernels; a graph of kernels; then an all-reduce of all GPUs, of a single GPU between two
// ranks on it. Calls done for each. No GPU: no checks.
void check_gpus(const DeviceCheckFn& done);

// norm(got - expected) / norm(expected), of all elements, in f64. NaN if one of them is NaN.
double relative_error(const Tensor& got, const Tensor& expected);

// The largest relative_error() of a correct result whose elements are sums of up to `terms` products of random signs:
// half a unit in the last place of `dtype` for the result, and for the sums, which are made in f32 (of f64 in f64), 4
// units a term. Their rounding errors are independent and grow like the square root of the number of terms, so that
// this also has room for Winograd's convolutions. It is below the error of a missing term, of operands that were
// rounded to TF32 and of sums in 16 bits.
double rounding_bound(DType dtype, int64_t terms);

}  // namespace ringtape
