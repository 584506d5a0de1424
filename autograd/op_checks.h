#pragma once
#include <span>
#include <string>

#include "autograd/op.h"

// The checks that follow from an op's record (autograd/op.h) alone. ringtape's own ops are tested by them; call
// check_op() for those of your own.
namespace ringtape {

struct OpCheck {
  const char* name;
  std::string (*run)(const Op& op, Device device);  // the first sample for which it fails, and how; empty: none
};

// Those for a type of device. They change the number of threads, the instruction set and the memory fill while they
// run.
//   gradients         CPU: backward() agrees with finite differences, in f64 (autograd/gradcheck.h)
//   dtypes            CPU: f32, bf16 and f16 agree with f64 to 8 eps (1 + |y|) times the record's tolerance
//   instruction_sets  CPU: those of this build and machine agree in f32
//   written           CPU: every element of the results is written, in all dtypes and instruction sets
//   inputs            CPU: the inputs are left alone
//   refusals          CPU: the record's invalid calls throw an Error of one line, which begins with the op's name; f32
//                     and f64 operands a DTypeError that names both
//   cpu               GPU: values and gradients agree with the CPU's, in all dtypes
//   layouts           permuted, sliced and repeated operands give what dense ones do
//   repeats           the same bytes again; on the CPU for 1, 2 and 3 threads
std::span<const OpCheck> op_checks(DeviceType type);

// All of them on a device. Returns a line for each that fails, "softsign: layouts: sample odd, ...", or nothing.
std::string check_op(const Op& op, Device device = {});

}  // namespace ringtape
