#pragma once
#include "kernels/cpu/vector/vector.h"

// Vectors to bits, one bit per lane, and back.
RT_ISA_BEGIN

namespace {

// Integer lanes of the same size: the result of comparing vectors.
template <class T> using LaneBits = Vec<std::conditional_t<sizeof(T) == 4, int32_t, int64_t>>;

// Bit l is set if lane l is above 0.
template <class T> RT_INLINE unsigned bits_above_zero(Vec<T> v) {
#if RT_ISA_LEVEL == 3
  if constexpr (sizeof(T) == 4) return _mm512_cmp_ps_mask(__m512(v), _mm512_setzero_ps(), _CMP_GT_OQ);
  else return _mm512_cmp_pd_mask(__m512d(v), _mm512_setzero_pd(), _CMP_GT_OQ);
#elif RT_ISA_LEVEL == 2
  if constexpr (sizeof(T) == 4) return unsigned(_mm256_movemask_ps(__m256(v > 0)));
  else return unsigned(_mm256_movemask_pd(__m256d(v > 0)));
#elif defined(__x86_64__)
  if constexpr (sizeof(T) == 4) return unsigned(_mm_movemask_ps(__m128(v > 0)));
  else return unsigned(_mm_movemask_pd(__m128d(v > 0)));
#elif defined(__aarch64__)
  if constexpr (sizeof(T) == 4) return vaddvq_u32(vandq_u32(uint32x4_t(v > 0), uint32x4_t{1, 2, 4, 8}));
  else return unsigned(vaddvq_u64(vandq_u64(uint64x2_t(v > 0), uint64x2_t{1, 2})));
#else
  unsigned bits = 0;
  for (int l = 0; l < kLanes<T>; ++l) bits |= unsigned(v[l] > 0) << l;
  return bits;
#endif
}

// v in the lanes whose bit is set, else 0.
template <class T> RT_INLINE Vec<T> where_bits(unsigned bits, Vec<T> v) {
#if RT_ISA_LEVEL == 3
  if constexpr (sizeof(T) == 4) return Vec<T>(_mm512_maskz_mov_ps(__mmask16(bits), __m512(v)));
  else return Vec<T>(_mm512_maskz_mov_pd(__mmask8(bits), __m512d(v)));
#else
  LaneBits<T> own;
  for (int l = 0; l < kLanes<T>; ++l) own[l] = 1 << l;
  return Vec<T>(LaneBits<T>(v) & ((own & int(bits)) != 0));
#endif
}

// The bits of one vector of lanes from element i on (a multiple of kLanes), in a row whose bits begin at `mask`.
template <class T> RT_INLINE unsigned bits_at(const uint8_t* mask, int64_t i) {
  if constexpr (kLanes<T> == 16) {
    uint16_t bits;
    std::memcpy(&bits, mask + i / 8, sizeof bits);
    return bits;
  } else {
    return unsigned(mask[i / 8]) >> (i % 8);
  }
}

}  // namespace

RT_ISA_END
