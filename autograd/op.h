#pragma once
#include <functional>
#include <string>
#include <vector>

#include "core/tensor.h"

// The record of an op: what its tests, its comparison between devices and its benchmark need to know. It stands at the
// foot of the op's file; tests and benchmarks walk ops().
namespace ringtape {

enum class Fill : uint8_t {
  real,   // floating point, uniform in [low, high)
  index,  // i64, uniform in [low, high)
  mask,   // b8, true or false alike
};

struct Input {
  Shape shape;
  double low = -1, high = 1;
  Fill fill = Fill::real;
};

// A public function with its attributes bound, and the inputs to call it on.
struct Sample {
  std::string tag;
  std::vector<Input> inputs;
  std::function<Tensor(const Tensors&)> call;
};

struct Op {
  const char* name;
  std::vector<Sample> samples = {};    // small: values and gradients, in every dtype and layout
  std::vector<Sample> workloads = {};  // large: benchmarks
  std::vector<Sample> invalid = {};    // calls that must throw ShapeError, DTypeError or UsageError
  std::vector<double> kinks = {};      // input values where it has no derivative; samples keep away from them
  std::function<double(const Tensors& inputs, const Tensor& y)> flops = {};  // of one forward call, if that bounds it
  double tolerance = 1;           // factor on 8 eps (1 + |y|), what comparisons between dtypes allow: grows with what is summed
  bool differentiable = true;
};

std::vector<Op>& ops();  // in no particular order

struct RegisterOp {
  explicit RegisterOp(Op op) { ops().push_back(std::move(op)); }
};

// Inputs for a sample, the same for the same seed on every machine and for every device.
Tensors draw(const Sample& sample, DType dtype, uint64_t seed, const std::vector<double>& kinks = {});

}  // namespace ringtape
