#pragma once
#include <cstdint>
#include <cstring>

#include "kernels/bf16_unit.h"
#include "kernels/cpu/bf16_emulation.h"

// AVX512-BF16. Kernels take the unit as a template argument. A lane of 32 bits is a pair of bf16.
RT_ISA_BEGIN

namespace {

#if RT_ISA_LEVEL == 3
struct Avx512Bf16 {
  // sum + the products of both elements of a lane, of the upper one first.
  RT_INLINE static Vec<float> dot(Vec<float> sum, Vec<int32_t> a, Vec<int32_t> b) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
  }
};
#endif

struct EmulatedAvx512Bf16 {
  static Vec<float> dot(Vec<float> sum, Vec<int32_t> a, Vec<int32_t> b) {
    bf16 x[2 * kLanes<float>], y[2 * kLanes<float>];
    std::memcpy(static_cast<void*>(x), &a, sizeof x), std::memcpy(static_cast<void*>(y), &b, sizeof y);
    for (int l = 0; l < kLanes<float>; ++l)
      sum[l] = add_product(add_product(flushed(sum[l]), x[2 * l + 1], y[2 * l + 1]), x[2 * l], y[2 * l]);
    return sum;
  }
};

// f(unit), emulated or not.
template <class F>
RT_INLINE void with_avx512_bf16([[maybe_unused]] bool emulated, F&& f) {
#if RT_ISA_LEVEL == 3
  if (!emulated) return f(Avx512Bf16{});
#endif
  f(EmulatedAvx512Bf16{});
}

}  // namespace

RT_ISA_END
