#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "core/check.h"

#ifdef __CUDACC__
#define RT_HD __host__ __device__
#else
#define RT_HD
#endif

namespace ringtape {

enum class DType : uint8_t { b8, u8, i32, i64, f16, bf16, f32, f64 };

std::string_view name_of(DType dtype);     // "f32"
DType parse_dtype(std::string_view name);  // throws UsageError for an unknown name
constexpr bool is_float(DType d) { return d >= DType::f16; }
constexpr size_t size_of(DType d) {
  constexpr size_t sizes[] = {1, 1, 4, 8, 2, 2, 4, 8};
  return sizes[size_t(d)];
}

// IEEE 754 binary16, storage only: arithmetic happens in float. Rounds to nearest even; overflow gives infinity.
// Branch-free so that loops over it vectorise; the scaling trick is Marat Dutukhan's (FP16 library, MIT).
struct f16 {
  uint16_t bits = 0;
  f16() = default;
  RT_HD explicit f16(float x) {
#ifdef __CUDA_ARCH__
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
#else
    const float scale_to_inf = std::bit_cast<float>(0x77800000u), scale_to_zero = std::bit_cast<float>(0x08800000u);
    const uint32_t w = std::bit_cast<uint32_t>(x), sign = w & 0x80000000u, shl1 = w + w;
    float base = std::bit_cast<float>(w & 0x7fffffffu) * scale_to_inf * scale_to_zero;
    uint32_t bias = shl1 & 0xff000000u;
    bias = bias < 0x71000000u ? 0x71000000u : bias;
    base = std::bit_cast<float>((bias >> 1) + 0x07800000u) + base;
    const uint32_t b = std::bit_cast<uint32_t>(base), exponent = (b >> 13) & 0x7c00u, mantissa = b & 0x0fffu;
    bits = uint16_t((sign >> 16) | (shl1 > 0xff000000u ? 0x7e00u : exponent + mantissa));
#endif
  }
  RT_HD explicit operator float() const {
#ifdef __CUDA_ARCH__
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
#else
    const uint32_t w = uint32_t(bits) << 16, sign = w & 0x80000000u, two_w = w + w;
    const float normal = std::bit_cast<float>((two_w >> 4) + (0xe0u << 23)) * std::bit_cast<float>(0x07800000u);
    const float subnormal = std::bit_cast<float>((two_w >> 17) | (126u << 23)) - 0.5f;
    const uint32_t magnitude = std::bit_cast<uint32_t>(two_w < (1u << 27) ? subnormal : normal);
    return std::bit_cast<float>(sign | magnitude);
#endif
  }
};

// The upper half of a float; rounds to nearest even, NaN stays NaN.
struct bf16 {
  uint16_t bits = 0;
  bf16() = default;
  RT_HD explicit bf16(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
#else
    const uint32_t w = std::bit_cast<uint32_t>(x), rounded = w + 0x7fffu + ((w >> 16) & 1u);
    bits = uint16_t(((w & 0x7fffffffu) > 0x7f800000u ? (w | 0x400000u) : rounded) >> 16);
#endif
  }
  RT_HD explicit operator float() const { return std::bit_cast<float>(uint32_t(bits) << 16); }
};

template <class T> struct dtype_of;
template <> struct dtype_of<bool> { static constexpr DType value = DType::b8; };
template <> struct dtype_of<uint8_t> { static constexpr DType value = DType::u8; };
template <> struct dtype_of<int32_t> { static constexpr DType value = DType::i32; };
template <> struct dtype_of<int64_t> { static constexpr DType value = DType::i64; };
template <> struct dtype_of<f16> { static constexpr DType value = DType::f16; };
template <> struct dtype_of<bf16> { static constexpr DType value = DType::bf16; };
template <> struct dtype_of<float> { static constexpr DType value = DType::f32; };
template <> struct dtype_of<double> { static constexpr DType value = DType::f64; };

template <class T> inline constexpr bool is_half_v = std::is_same_v<T, f16> || std::is_same_v<T, bf16>;

// The type for arithmetic on T: 16-bit floats accumulate in float.
template <class T> using compute_t = std::conditional_t<is_half_v<T>, float, T>;

// The unsigned integer of T's size, for elements that are only moved.
template <class T>
using bits_t = std::conditional_t<
    sizeof(T) == 1, uint8_t,
    std::conditional_t<sizeof(T) == 2, uint16_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>>;

// Calls f.template operator()<T>() with the C++ type that stores `dtype`.
template <class F> decltype(auto) dispatch(DType dtype, F&& f) {
  switch (dtype) {
    case DType::b8: return f.template operator()<bool>();
    case DType::u8: return f.template operator()<uint8_t>();
    case DType::i32: return f.template operator()<int32_t>();
    case DType::i64: return f.template operator()<int64_t>();
    case DType::f16: return f.template operator()<f16>();
    case DType::bf16: return f.template operator()<bf16>();
    case DType::f32: return f.template operator()<float>();
    case DType::f64: return f.template operator()<double>();
  }
  detail::fail<DTypeError>({"unknown dtype ", int(dtype)});
}

// The same for floating-point types only.
template <class F> decltype(auto) dispatch_float(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f16: return f.template operator()<f16>();
    case DType::bf16: return f.template operator()<bf16>();
    case DType::f32: return f.template operator()<float>();
    case DType::f64: return f.template operator()<double>();
    default: detail::fail<DTypeError>({"expected a floating-point dtype, got ", dtype});
  }
}

}  // namespace ringtape
