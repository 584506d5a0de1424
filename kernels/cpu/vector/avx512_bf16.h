#pragma once
#include <cstdint>
#include <cstring>

#include "kernels/cpu/vector/bf16_emulation.h"
#include "kernels/cpu/vector/by_unit.h"

// AVX512-BF16. A lane of 32 bits is a pair of bf16.
RT_ISA_BEGIN

namespace {

#ifdef RT_EMULATED
struct EmulatedAvx512Bf16 {
  // Not inline: their loops would be between the sums and products of the caller, which the compiler then fuses less.
  [[gnu::noinline]] static Vec<float> dot(Vec<float> sum, Vec<int32_t> a, Vec<int32_t> b) {
    bf16 x[2 * kLanes<float>], y[2 * kLanes<float>];
    std::memcpy(static_cast<void*>(x), &a, sizeof x), std::memcpy(static_cast<void*>(y), &b, sizeof y);
    for (int l = 0; l < kLanes<float>; ++l)
      sum[l] = add_product(add_product(flushed(sum[l]), x[2 * l + 1], y[2 * l + 1]), x[2 * l], y[2 * l]);
    return sum;
  }

  [[gnu::noinline]] static void store(bf16* p, Vec<float> x) {
    for (int l = 0; l < kLanes<float>; ++l) p[l] = bf16(flushed(x[l]));
  }

  [[gnu::noinline]] static void store_pairs(bf16* p, Vec<float> low, Vec<float> high) {
    for (int l = 0; l < kLanes<float>; ++l) p[2 * l] = bf16(flushed(low[l])), p[2 * l + 1] = bf16(flushed(high[l]));
  }
};
using Avx512Bf16 = EmulatedAvx512Bf16;
#else
struct Avx512Bf16 {
  // sum + the products of both elements of a lane, of the upper one first.
  RT_INLINE static Vec<float> dot(Vec<float> sum, Vec<int32_t> a, Vec<int32_t> b) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
  }

  // Rounds to nearest; subnormal numbers become zeros.
  RT_INLINE static void store(bf16* p, Vec<float> x) {
    typedef int16_t Half __attribute__((vector_size(kVectorBytes / 2)));
    Half half;
    asm("vcvtneps2bf16 %1, %0" : "=v"(half) : "v"(x));
    std::memcpy(static_cast<void*>(p), &half, sizeof half);
  }

  // The same for pairs: low[0], high[0], low[1], ...
  RT_INLINE static void store_pairs(bf16* p, Vec<float> low, Vec<float> high) {
    alignas(64) static constexpr uint16_t order[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                       8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    Vec<int32_t> both;
    asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(both) : "v"(low), "v"(high));
    _mm512_storeu_si512(p, _mm512_permutexvar_epi16(_mm512_load_si512(order), __m512i(both)));
  }
};
#endif

// The first `count` lanes, or all.
RT_INLINE void store_rounded(bf16* p, Vec<float> x, int64_t count) {
  if (count >= kLanes<float>) return Avx512Bf16::store(p, x);
  bf16 lanes[kLanes<float>];
  Avx512Bf16::store(lanes, x);
  std::memcpy(static_cast<void*>(p), lanes, size_t(count) * sizeof(bf16));
}

}  // namespace

RT_ISA_END
