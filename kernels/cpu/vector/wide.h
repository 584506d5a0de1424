#pragma once
#include "kernels/cpu/vector/mask.h"

// A vector of memory in the compute type. With AVX-512, one of bf16 is its even and its odd elements, in two vectors:
// then no instruction moves elements between lanes.
RT_ISA_BEGIN

namespace {

template <class T> inline constexpr int kHalves = RT_ISA_LEVEL == 3 && std::is_same_v<T, bf16> ? 2 : 1;
template <class T> inline constexpr int kWide = kHalves<T>* kLanes<compute_t<T>>;  // elements

template <class T> struct Wide { Vec<compute_t<T>> half[kHalves<T>]; };

// Where the number for element i of a row is, among numbers in the order of lanes; these are wide_size(n).
template <class T> constexpr int64_t place_of(int64_t i) {
  if constexpr (kHalves<T> == 1) return i;
  else return i - i % kWide<T> + i % 2 * kLanes<float> + i % kWide<T> / 2;
}
template <class T> constexpr int64_t wide_size(int64_t n) { return (n + kWide<T> - 1) / kWide<T> * kWide<T>; }

template <class T> RT_INLINE Wide<T> operator+(Wide<T> a, const Wide<T>& b) {
  for (int h = 0; h < kHalves<T>; ++h) a.half[h] = a.half[h] + b.half[h];
  return a;
}
template <class T> RT_INLINE Wide<T> operator-(Wide<T> a, const Wide<T>& b) {
  for (int h = 0; h < kHalves<T>; ++h) a.half[h] = a.half[h] - b.half[h];
  return a;
}
template <class T> RT_INLINE Wide<T> operator*(Wide<T> a, const Wide<T>& b) {
  for (int h = 0; h < kHalves<T>; ++h) a.half[h] = a.half[h] * b.half[h];
  return a;
}

// Numbers in the order of lanes.
template <class T> RT_INLINE Wide<T> load_in_order(const compute_t<T>* p) {
  Wide<T> out;
  for (int h = 0; h < kHalves<T>; ++h) out.half[h] = load(p + h * kLanes<compute_t<T>>);
  return out;
}
template <class T> RT_INLINE void store_in_order(compute_t<T>* p, const Wide<T>& v) {
  for (int h = 0; h < kHalves<T>; ++h) store(p + h * kLanes<compute_t<T>>, v.half[h]);
}

#if RT_ISA_LEVEL == 3
RT_INLINE Wide<bf16> split(__m512i w) {
  return {{Vec<float>(Vec<uint32_t>(w) << 16), Vec<float>(Vec<uint32_t>(w) & 0xffff0000u)}};
}
// Rounded to bf16. Where neither half of a lane is NaN, the last bit that stays is added by a mask.
RT_INLINE __m512i joined(const Wide<bf16>& v) {
  const auto join = [](Vec<uint32_t> even, Vec<uint32_t> odd)
                        RT_INLINE_LAMBDA { return __m512i((even >> 16) | (odd & 0xffff0000u)); };
  if (_mm512_cmp_ps_mask(__m512(v.half[0]), __m512(v.half[1]), _CMP_UNORD_Q)) [[unlikely]]
    return join(rounded_bits(v.half[0]), rounded_bits(v.half[1]));
  Vec<uint32_t> up[2];
  for (int h = 0; h < 2; ++h) {
    const auto w = Vec<uint32_t>(v.half[h]), half = w + 0x7fffu, one = w * 0 + 1;
    const __mmask16 odd = _mm512_test_epi32_mask(__m512i(w), _mm512_set1_epi32(0x10000));
    up[h] = Vec<uint32_t>(_mm512_mask_add_epi32(__m512i(half), odd, __m512i(half), __m512i(one)));
  }
  return join(up[0], up[1]);
}
RT_INLINE __mmask32 first_elements(int64_t count) { return _bzhi_u32(~0u, uint32_t(count)); }  // of at most 255
RT_INLINE __m512i load_bits(const bf16* p, int64_t count) {
  return count >= kWide<bf16> ? _mm512_loadu_si512(p) : _mm512_maskz_loadu_epi16(first_elements(count), p);
}
RT_INLINE __m512i load_bits_where(uint32_t bits, const bf16* p, int64_t count) {
  return _mm512_maskz_loadu_epi16(count >= kWide<bf16> ? bits : bits & first_elements(count), p);
}
RT_INLINE void store_bits(bf16* p, __m512i v, int64_t count) {
  count >= kWide<bf16> ? _mm512_storeu_si512(p, v) : _mm512_mask_storeu_epi16(p, first_elements(count), v);
}
#endif

// The first `count` elements from p on, at most all.
template <class T> RT_INLINE Wide<T> load_wide(const T* p, int64_t count) {
#if RT_ISA_LEVEL == 3
  if constexpr (kHalves<T> == 2) return split(load_bits(p, count));
#endif
  if constexpr (kHalves<T> == 1) return {{load_converted(p, count)}};
}

// Those of them whose bit is set; the others are 0. Also stores them at `copy`, unless that is null.
template <class T> RT_INLINE Wide<T> load_wide_where(uint32_t bits, const T* p, int64_t count, T* copy = nullptr) {
#if RT_ISA_LEVEL == 3
  if constexpr (kHalves<T> == 2) {
    const __m512i kept = load_bits_where(bits, p, count);
    if (copy) store_bits(copy, kept, count);
    return split(kept);
  }
#endif
  if constexpr (kHalves<T> == 1) {
    const auto kept = where_bits<compute_t<T>>(bits, load_converted(p, count));
    if (copy) store_converted(copy, kept, count);
    return {{kept}};
  }
}

template <class T> RT_INLINE void store_wide(T* p, const Wide<T>& v, int64_t count) {
#if RT_ISA_LEVEL == 3
  if constexpr (kHalves<T> == 2) store_bits(p, joined(v), count);
#endif
  if constexpr (kHalves<T> == 1) store_converted(p, v.half[0], count);
}

// v where it is not negative; -0 and NaN stay.
template <class T> RT_INLINE Wide<T> not_negative(Wide<T> v) {
  for (int h = 0; h < kHalves<T>; ++h) {
#if RT_ISA_LEVEL == 3
    if constexpr (sizeof(compute_t<T>) == 4) {
      v.half[h] = Vec<float>(_mm512_maskz_max_ps(kAllLanes, _mm512_setzero_ps(), __m512(v.half[h])));
      continue;
    }
#endif
    v.half[h] = v.half[h] < 0 ? Vec<compute_t<T>>{} : v.half[h];
  }
  return v;
}

// A bit for each element, in their order: is it above 0?
template <class T> RT_INLINE uint32_t bits_above_zero(const Wide<T>& v) {
  const uint32_t first = bits_above_zero<compute_t<T>>(v.half[0]);
#if RT_ISA_LEVEL == 3
  if constexpr (kHalves<T> == 2)
    return _pdep_u32(first, 0x55555555u) | _pdep_u32(bits_above_zero<float>(v.half[1]), 0xaaaaaaaau);
#endif
  return first;
}

// The bits of elements i (a multiple of kWide) to i + count of a row whose bits begin at `mask`. Rows have whole pairs
// of bytes.
template <class T> RT_INLINE uint32_t wide_bits_at(const uint8_t* mask, int64_t i, int64_t count) {
  if constexpr (kWide<T> == 32) {
    if (count > 16) {
      uint32_t bits;
      std::memcpy(&bits, mask + i / 8, sizeof bits);
      return bits;
    }
    return bits_at<float>(mask, i);
  } else {
    return bits_at<compute_t<T>>(mask, i);
  }
}

// Lanes of v in double: as many as fit into a vector, from the first on, or with part 1 those behind them.
template <int part, class V, size_t... l> RT_INLINE Vec<double> in_double(V v, std::index_sequence<l...>) {
  return __builtin_convertvector(__builtin_shufflevector(v, v, (part * kLanes<double> + int(l))...), Vec<double>);
}
template <int part, class V> RT_INLINE Vec<double> in_double(V v) {
  if constexpr (std::is_same_v<V, Vec<double>>) return v;
  else return in_double<part>(v, std::make_index_sequence<kLanes<double>>());
}

// The first `count` of at most `most` bits, a multiple of 16 that is at most 32, to a row's mask.
template <int64_t most> RT_INLINE void store_mask(uint8_t* mask, uint32_t bits, int64_t count) {
  if (count < most) bits &= (1u << count) - 1;
  if (most == 32 && count > 16) std::memcpy(mask, &bits, 4);
  else std::memcpy(mask, &bits, 2);
}

// f(i, count) for every `step` elements of a row of n, where count is a constant for all but the last.
template <int64_t step, class F> RT_INLINE void for_each_step(int64_t n, const F& f) {
  int64_t i = 0;
  for (; i + step <= n; i += step) f(i, std::integral_constant<int64_t, step>{});
  if (i < n) f(i, n - i);
}

}  // namespace

RT_ISA_END
