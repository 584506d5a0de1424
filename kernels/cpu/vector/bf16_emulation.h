#pragma once
#include <cmath>
#include <limits>

#include "kernels/cpu/vector/vector.h"

// What the instructions for bf16 have in common, in plain C++: subnormal operands and results are zeros, every sum is
// rounded to nearest (Intel's Software Developer's Manual, DPBF16PS and TDPBF16PS).
RT_ISA_BEGIN

namespace {

RT_INLINE float flushed(float x) {
  return std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.f, x) : x;
}

// sum + a b, rounded once: the product is exact in double, and so is the sum, unless one is too small to matter.
RT_INLINE float add_product(float sum, bf16 a, bf16 b) {
  return flushed(float(double(flushed(float(a))) * double(flushed(float(b))) + double(sum)));
}

}  // namespace

RT_ISA_END
