#pragma once
#include "autograd/op.h"
#include "tests/support/support.h"

// Runs the samples of an op, for the suites that test all records.
namespace ringtape::test {

struct Result {
  Tensor y;
  Tensors gradients;  // of the floating-point inputs; undefined if there is none
};

// Calls the sample and, if it is differentiable, backward() with a fixed dL/dy, on the device of the inputs.
Result run(const Op& op, const Sample& sample, const Tensors& inputs);

void expect_close(const Result& a, const Result& b, double rtol, double atol, const std::string& what);
bool identical(const Result& a, const Result& b);  // bit for bit

// The same values in another memory layout.
Tensor permuted(const Tensor& x);
Tensor sliced(const Tensor& x);
// Repeats the first element of the first axis with stride 0. The values change, and so does the reference.
Tensor repeated(const Tensor& x);

struct MemoryLayout {
  const char* name;
  Tensor (*of)(const Tensor&);
};
inline constexpr MemoryLayout kLayouts[] = {{"permuted", permuted}, {"sliced", sliced}, {"repeated", repeated}};

}  // namespace ringtape::test

namespace ringtape {
std::ostream& operator<<(std::ostream& out, const Op& op);  // its name, for the names of tests
}
