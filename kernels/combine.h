#pragma once
#include "kernels/kernel.h"

// What collectives do to numbers: several buffers of one size become one.
namespace ringtape {

enum class ReduceOp : uint8_t { sum, avg, max, min, product };
constexpr std::string_view name_of(ReduceOp op) {
  constexpr std::string_view names[] = {"sum", "avg", "max", "min", "product"};
  return names[size_t(op)];
}

inline constexpr int kMaxSources = 32;
struct Sources {
  const void* data[kMaxSources];
  int count;
};

// y = factor * (x_0 op x_1 op ... ), elementwise, in the order of the sources; y has one axis, is contiguous and of any dtype but
// b8, and the sources are as y is, on its device. y may be one of them. avg is sum: what it is divided by is the caller's
// `factor`, 1 for nothing; integers take 1 / factor as a whole number and divide, towards zero. 16-bit floats are combined in
// f32 and rounded once; a NaN stays one in max and min.
RT_KERNEL(combine, void(View y, Sources x, ReduceOp op, double factor));

}  // namespace ringtape
