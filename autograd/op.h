#pragma once
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"

// The record of an op: everything that its tests, the comparison of devices and its benchmark need. It is at the end of
// the op's file; tests and benchmarks iterate over ops().
namespace ringtape {

enum class Fill : uint8_t {
  real,   // floating point, uniform in [low, high)
  index,  // i64, uniform in [low, high)
  mask,   // b8, uniformly true or false
};

struct Input {
  Shape shape;
  double low = -1, high = 1;
  Fill fill = Fill::real;
};

// A public function with its attributes bound, and the inputs to call it with.
struct Sample {
  std::string tag;
  std::vector<Input> inputs;
  std::function<Tensor(const Tensors&)> call;
};

// Samples as a record has them: constants, so that no code constructs each of them.
struct InputRecord {
  std::initializer_list<int64_t> shape;
  double low = -1, high = 1;
  Fill fill = Fill::real;
};
struct SampleRecord {
  const char* tag;
  std::initializer_list<InputRecord> inputs;
  Tensor (*call)(const Tensors&);
};
struct Samples : std::vector<Sample> {
  Samples() = default;
  Samples(std::initializer_list<SampleRecord> records);
  Samples(std::vector<Sample> computed) : std::vector<Sample>(std::move(computed)) {}
};

struct Op {
  const char* name;
  Samples samples = {};            // small: values and gradients, in every dtype and layout
  Samples workloads = {};          // large: benchmarks
  Samples invalid = {};            // calls that must throw ShapeError, DTypeError or UsageError
  std::vector<double> kinks = {};  // input values without a derivative; samples avoid them
  double (*flops)(const Tensors& inputs, const Tensor& y) = nullptr;  // of one forward call; if compute-bound
  double tolerance = 1;  // factor of 8 eps (1 + |y|), the bound between dtypes: larger for long sums
  bool differentiable = true;
};

std::vector<Op>& ops();  // in no particular order

struct RegisterOp {
  explicit RegisterOp(Op op);
};

// Random inputs for a sample: the same for the same seed on every machine and device.
Tensors draw(const Sample& sample, DType dtype, uint64_t seed, const std::vector<double>& kinks = {});

}  // namespace ringtape
