#pragma once
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "core/dtype.h"
#include "kernels/cpu/vector/isa.h"

RT_ISA_BEGIN

namespace {

template <class T> struct VecOf { typedef T type __attribute__((vector_size(kVectorBytes))); };
template <class T> using Vec = typename VecOf<T>::type;
template <class T> inline constexpr int kLanes = kVectorBytes / int(sizeof(T));

// The larger (smaller) of two numbers, or of two vectors lane by lane; NaN on either side gives NaN. Without a branch,
// since a loop over `a > b || a != a` does not vectorise.
template <class V> RT_INLINE V max_or_nan(V a, V b) {
  const V top = b > a ? b : a;
  return b != b ? b : top;
}

template <class V> RT_INLINE V min_or_nan(V a, V b) {
  const V low = b < a ? b : a;
  return b != b ? b : low;
}

template <class T> RT_INLINE Vec<T> load(const T* p) {
  Vec<T> v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <class T> RT_INLINE void store(T* p, Vec<T> v) { std::memcpy(p, &v, sizeof v); }

// Of a loop that reads and writes large tensors in order: their lines of 2 KiB ahead. By itself a processor fetches
// what is read, not what is written.
inline constexpr int64_t kAhead = 2048;
RT_INLINE void prefetch_ahead(const void* p) { __builtin_prefetch(static_cast<const char*>(p) + kAhead); }
RT_INLINE void prefetch_to_write(void* p) { __builtin_prefetch(static_cast<char*>(p) + kAhead, 1); }

// Prevents GCC from loading or computing the value again for each use.
template <class V> RT_INLINE void in_register([[maybe_unused]] V& v) {
  if constexpr (std::is_pointer_v<V>) asm("" : "+r"(v));
#if RT_ISA_LEVEL == 3
  else asm("" : "+v"(v));
#elif defined(__x86_64__)
  else asm("" : "+x"(v));
#elif defined(__aarch64__)
  else asm("" : "+w"(v));
#endif
}

#if RT_ISA_LEVEL == 3
inline constexpr __mmask16 kAllLanes = 0xffff;  // GCC 12 warns of an undefined register in intrinsics without a mask
#endif

// The first `count` lanes; the others are zero and their memory is not touched.
#if RT_ISA_LEVEL == 3
RT_INLINE Vec<float> load_partial(const float* p, int64_t count) {
  return Vec<float>(_mm512_maskz_loadu_ps(__mmask16((1u << count) - 1), p));
}
RT_INLINE Vec<double> load_partial(const double* p, int64_t count) {
  return Vec<double>(_mm512_maskz_loadu_pd(__mmask8((1u << count) - 1), p));
}
RT_INLINE void store_partial(float* p, Vec<float> v, int64_t count) {
  _mm512_mask_storeu_ps(p, __mmask16((1u << count) - 1), __m512(v));
}
RT_INLINE void store_partial(double* p, Vec<double> v, int64_t count) {
  _mm512_mask_storeu_pd(p, __mmask8((1u << count) - 1), __m512d(v));
}
#elif RT_ISA_LEVEL == 2
// The mask of the first `count` of `lanes` lanes.
template <int lanes> RT_INLINE __m256i first_lanes(int64_t count) {
  alignas(64) static constexpr int32_t kBits[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kBits + 8 / lanes * (lanes - count)));
}
RT_INLINE Vec<float> load_partial(const float* p, int64_t count) {
  return Vec<float>(_mm256_maskload_ps(p, first_lanes<8>(count)));
}
RT_INLINE Vec<double> load_partial(const double* p, int64_t count) {
  return Vec<double>(_mm256_maskload_pd(p, first_lanes<4>(count)));
}
// By halves: masked stores of this width take tens of operations on AMD's processors.
RT_INLINE void store_partial(double* p, Vec<double> v, int64_t count) {
  if (count >= 4) return store(p, v);
  __m128d part = _mm256_castpd256_pd128(v);
  if (count & 2) _mm_storeu_pd(p, part), part = _mm256_extractf128_pd(v, 1), p += 2;
  if (count & 1) _mm_store_sd(p, part);
}
RT_INLINE void store_partial(float* p, Vec<float> v, int64_t count) {
  if (count >= 8) return store(p, v);
  __m128 part = _mm256_castps256_ps128(v);
  if (count & 4) _mm_storeu_ps(p, part), part = _mm256_extractf128_ps(v, 1), p += 4;
  if (count & 2) _mm_storel_pi(reinterpret_cast<__m64*>(p), part), part = _mm_movehl_ps(part, part), p += 2;
  if (count & 1) _mm_store_ss(p, part);
}
#else
template <class T> RT_INLINE Vec<T> load_partial(const T* p, int64_t count) {
  Vec<T> v{};
  for (int l = 0; l < kLanes<T>; ++l)
    if (l < count) v[l] = p[l];
  return v;
}
template <class T> RT_INLINE void store_partial(T* p, Vec<T> v, int64_t count) {
  for (int l = 0; l < kLanes<T>; ++l)
    if (l < count) p[l] = v[l];
}
#endif

// bf16(v), in the upper halves of the lanes.
[[maybe_unused]] RT_INLINE Vec<uint32_t> rounded_bits(Vec<float> v) {
  const Vec<uint32_t> w = Vec<uint32_t>(v), up = w + 0x7fffu + ((w >> 16) & 1u);
  return v != v ? (w | 0x400000u) : up;
}

// A vector of 16-bit numbers as f32, and back. Compilers find these instructions in no loop.
#if RT_ISA_LEVEL == 3
using HalfBits = __m256i;
template <class T> RT_INLINE Vec<float> from_bits(HalfBits w) {
  if constexpr (std::is_same_v<T, f16>) return Vec<float>(_mm512_maskz_cvtph_ps(kAllLanes, w));
  else return Vec<float>(Vec<uint32_t>(_mm512_maskz_cvtepu16_epi32(kAllLanes, w)) << 16);
}
template <class T> RT_INLINE HalfBits to_bits(Vec<float> v) {
  if constexpr (std::is_same_v<T, f16>) return _mm512_maskz_cvtps_ph(kAllLanes, __m512(v), _MM_FROUND_TO_NEAREST_INT);
  else return _mm512_maskz_cvtepi32_epi16(kAllLanes, __m512i(rounded_bits(v) >> 16));
}
#elif RT_ISA_LEVEL == 2
using HalfBits = __m128i;
template <class T> RT_INLINE Vec<float> from_bits(HalfBits w) {
  if constexpr (std::is_same_v<T, f16>) return Vec<float>(_mm256_cvtph_ps(w));
  else return Vec<float>(Vec<uint32_t>(_mm256_cvtepu16_epi32(w)) << 16);
}
template <class T> RT_INLINE HalfBits to_bits(Vec<float> v) {
  if constexpr (std::is_same_v<T, f16>) return _mm256_cvtps_ph(__m256(v), _MM_FROUND_TO_NEAREST_INT);
  const __m256i halves = __m256i(rounded_bits(v) >> 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
}
#elif RT_ISA_LEVEL == RT_ISA_neon
using HalfBits = uint16x4_t;
template <class T> RT_INLINE Vec<float> from_bits(HalfBits w) {
  if constexpr (std::is_same_v<T, f16>) return Vec<float>(vcvt_f32_f16(vreinterpret_f16_u16(w)));
  else return Vec<float>(vshll_n_u16(w, 16));
}
template <class T> RT_INLINE HalfBits to_bits(Vec<float> v) {
  if constexpr (std::is_same_v<T, f16>) return vreinterpret_u16_f16(vcvt_f16_f32(float32x4_t(v)));
  else return vshrn_n_u32(uint32x4_t(rounded_bits(v)), 16);
}
#endif

// A whole vector of T in the compute type, and back.
template <class T> RT_INLINE Vec<compute_t<T>> load_whole(const T* p) {
  using C = compute_t<T>;
  if constexpr (std::is_same_v<T, C>) {
    return load(p);
  } else {
#if RT_ISA_LEVEL != RT_ISA_portable
    HalfBits w;
    std::memcpy(&w, p, sizeof w);
    return from_bits<T>(w);
#else
    C lanes[kLanes<C>];
    for (int l = 0; l < kLanes<C>; ++l) lanes[l] = C(p[l]);
    return load(lanes);
#endif
  }
}

template <class T> RT_INLINE void store_whole(T* p, Vec<compute_t<T>> v) {
  using C = compute_t<T>;
  if constexpr (std::is_same_v<T, C>) {
    store(p, v);
  } else {
#if RT_ISA_LEVEL != RT_ISA_portable
    const HalfBits w = to_bits<T>(v);
    std::memcpy(static_cast<void*>(p), &w, sizeof w);
#else
    C lanes[kLanes<C>];
    store(lanes, v);
    for (int l = 0; l < kLanes<C>; ++l) p[l] = T(lanes[l]);
#endif
  }
}

// Parts of a vector of 16-bit numbers.
template <class T> [[gnu::noinline, maybe_unused]] Vec<float> load_part(const T* p, int64_t count) {
#if RT_ISA_LEVEL == 3
  return from_bits<T>(_mm256_maskz_loadu_epi16(__mmask16((1u << count) - 1), p));
#else
  T some[kLanes<float>] = {};
  std::memcpy(static_cast<void*>(some), p, size_t(count) * sizeof(T));
  return load_whole(some);
#endif
}
template <class T> [[gnu::noinline, maybe_unused]] void store_part(T* p, Vec<float> v, int64_t count) {
#if RT_ISA_LEVEL == 3
  _mm256_mask_storeu_epi16(p, __mmask16((1u << count) - 1), to_bits<T>(v));
#else
  T some[kLanes<float>];
  store_whole(some, v);
  std::memcpy(static_cast<void*>(p), some, size_t(count) * sizeof(T));
#endif
}

// Loads `count` elements, at most one vector, in the compute type.
template <class T> RT_INLINE Vec<compute_t<T>> load_converted(const T* p, int64_t count) {
  using C = compute_t<T>;
  if (count >= kLanes<C>) return load_whole(p);
  if constexpr (std::is_same_v<T, C>) return load_partial(p, count);
  else return load_part(p, count);
}

// Stores the first `count` lanes (at most all) as T.
template <class T> RT_INLINE void store_converted(T* p, Vec<compute_t<T>> v, int64_t count) {
  using C = compute_t<T>;
  if (count >= kLanes<C>) return store_whole(p, v);
  if constexpr (std::is_same_v<T, C>) store_partial(p, v, count);
  else store_part(p, v, count);
}

// n numbers in the compute type, and back.
template <class T> [[maybe_unused]] void widen(const T* from, int64_t n, compute_t<T>* to) {
  constexpr int64_t lanes = kLanes<compute_t<T>>;
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) store(to + i, load_whole(from + i));
  if (i < n) store_partial(to + i, load_converted(from + i, n - i), n - i);
}
template <class T> [[maybe_unused]] void narrow(const compute_t<T>* from, int64_t n, T* to) {
  if constexpr (std::is_same_v<T, bf16>) {  // vectorises well by itself
    for (int64_t i = 0; i < n; ++i) to[i] = bf16(from[i]);
    return;
  }
  constexpr int64_t lanes = kLanes<compute_t<T>>;
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) store_whole(to + i, load(from + i));
  if (i < n) store_converted(to + i, load_partial(from + i, n - i), n - i);
}

// `a` where bit h of the lane's number is clear, `b` where it is set. GCC may run a shuffle on the only port that
// shuffles; a masked move has two ports.
template <class T, int h, size_t... l> RT_INLINE Vec<T> blend(Vec<T> a, Vec<T> b, std::index_sequence<l...>) {
#if RT_ISA_LEVEL == 3
  constexpr uint32_t mask = ((int(l) & h ? 1u << l : 0u) | ...);
  if constexpr (sizeof(T) == 4) return Vec<T>(_mm512_mask_blend_ps(__mmask16(mask), __m512(a), __m512(b)));
  else return Vec<T>(_mm512_mask_blend_pd(__mmask8(mask), __m512d(a), __m512d(b)));
#else
  return __builtin_shufflevector(a, b, (int(l) & h ? kLanes<T> + int(l) : int(l))...);
#endif
}

// Lanes l and l + h of `a` added where bit h of the lane's number is clear, those of `b` where it is set: one step of
// summing the lanes of several vectors.
template <class T, int h, size_t... l> RT_INLINE Vec<T> fold_pair(Vec<T> a, Vec<T> b, std::index_sequence<l...> lanes) {
  return blend<T, h>(a, b, lanes) +
         __builtin_shufflevector(a, b, (int(l) & h ? kLanes<T> + int(l) - h : int(l) + h)...);
}
template <class T, int h, size_t... l> RT_INLINE Vec<T> fold(Vec<T> a, std::index_sequence<l...>) {
  return a + __builtin_shufflevector(a, a, (int(l) ^ h)...);
}

template <int step, class V, size_t... l> RT_INLINE auto every(V a, std::index_sequence<l...>) {
  return __builtin_shufflevector(a, a, (int(l) * step)...);
}

// The lane sums of `count` vectors (a power of two, at most kLanes) as a vector of that many lanes. Always adds lanes
// half a vector apart first, so that a sum does not depend on its position in v.
template <class T, int count, int left = count, int h = kLanes<T> / 2> RT_INLINE auto lane_sums(Vec<T>* v) {
  constexpr auto lanes = std::make_index_sequence<kLanes<T>>();
  if constexpr (h == 0) {
    return every<kLanes<T> / count>(v[0], std::make_index_sequence<count>());
  } else if constexpr (left > 1) {
    for (int r = 0; r < left / 2; ++r) v[r] = fold_pair<T, h>(v[r], v[r + left / 2], lanes);
    return lane_sums<T, count, left / 2, h / 2>(v);
  } else {
    v[0] = fold<T, h>(v[0], lanes);
    return lane_sums<T, count, 1, h / 2>(v);
  }
}

template <class T, int h, size_t... l> RT_INLINE void exchange(Vec<T>& a, Vec<T>& b, std::index_sequence<l...>) {
  constexpr int n = kLanes<T>;
  const Vec<T> low = __builtin_shufflevector(a, b, (int(l) & h ? n + int(l) - h : int(l))...);
  b = __builtin_shufflevector(a, b, (int(l) & h ? n + int(l) : int(l) + h)...);
  a = low;
}

// Transposes kLanes vectors in place by exchanging off-diagonal squares, from large to small.
template <class T, int h = kLanes<T> / 2> RT_INLINE void transpose(Vec<T>* v) {
  if constexpr (h > 0) {
#pragma GCC unroll 16
    for (int r = 0; r < kLanes<T>; ++r)
      if (!(r & h)) exchange<T, h>(v[r], v[r + h], std::make_index_sequence<kLanes<T>>());
    transpose<T, h / 2>(v);
  }
}

// Into the L2 cache: the first `count` elements of each of `rows` rows.
template <class T> void prefetch_rows(const T* from, int64_t stride, int64_t rows, int64_t count) {
  for (int64_t r = 0; r < rows; ++r, from += stride)
    for (int64_t i = 0; i < count; i += 64 / int64_t(sizeof(T))) __builtin_prefetch(from + i, 0, 2);
}

}  // namespace

RT_ISA_END
