#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/cpu/vector/isa.h"

RT_ISA_BEGIN

// Elementary functions. For double those of the C library. For float branch-free polynomials that vectorise in a loop,
// within 3 units in the last place (measured by tests/kernels/kernel_test.cpp).
struct Math {
  RT_INLINE static double exp(double x) { return std::exp(x); }
  RT_INLINE static double log(double x) { return std::log(x); }
  RT_INLINE static double log2(double x) { return std::log2(x); }
  RT_INLINE static double exp2_falling(double x) { return std::exp2(x); }
  RT_INLINE static double tanh(double x) { return std::tanh(x); }
  RT_INLINE static double erf(double x) { return std::erf(x); }
  RT_INLINE static double log1p(double x) { return std::log1p(x); }
  RT_INLINE static double expm1(double x) { return std::expm1(x); }
  template <class T> RT_INLINE static T sin(T x) { return std::sin(x); }
  template <class T> RT_INLINE static T cos(T x) { return std::cos(x); }
  template <class T> RT_INLINE static T atan2(T y, T x) { return std::atan2(y, x); }
  template <class T> RT_INLINE static T floor(T x) { return std::floor(x); }
  template <class T> RT_INLINE static T ceil(T x) { return std::ceil(x); }
  template <class T> RT_INLINE static T trunc(T x) { return std::trunc(x); }
  template <class T> RT_INLINE static T round(T x) { return std::nearbyint(x); }  // to the even neighbour
  // As in Python: the remainder has the sign of b; the quotient is the whole number that belongs to it.
  template <class T> RT_INLINE static T remainder(T a, T b) {
    const T r = std::fmod(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
  }
  template <class T> RT_INLINE static T quotient(T a, T b) {
    const T r = std::fmod(a, b);
    return b == 0 ? a / b : round((a - r) / b - (r != 0 && (r < 0) != (b < 0) ? 1 : 0));
  }
  template <class T> RT_INLINE static T sqrt(T x) { return std::sqrt(x); }
  template <class T> RT_INLINE static T pow(T x, T y) { return std::pow(x, y); }
  template <class T> RT_INLINE static T abs(T x) { return std::fabs(x); }

  // exp(x) = 2^n exp(r), |r| <= ln(2)/2; minimax coefficients of Cephes' expf (Moshier).
  RT_INLINE static float exp(float x) {
    constexpr float log2e = 1.44269504f, ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f, round = 12582912.f;
    const float c = x > 89.f ? 89.f : (x < -104.f ? -104.f : x);
    const float shifted = c * log2e + round, n = shifted - round;
    const float r = (c - n * ln2_high) - n * ln2_low;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.f;
    // 2^n in two factors: n reaches 128 for the largest results and -150 for subnormal ones.
    const int32_t whole = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(round), half = whole >> 1;
    const float y = p * std::bit_cast<float>((half + 127) << 23) * std::bit_cast<float>((whole - half + 127) << 23);
    return x != x ? x : y;
  }

  // 2^x for x <= 0, exactly 1 for 0; 0 below -126. Half the instructions of exp.
  RT_INLINE static float exp2_falling(float x) {
    constexpr float round = 12582912.f;
    const float shifted = x + round, r = x - (shifted - round);
    float p = 1.5594668e-4f;  // minimax in (p - 1) / r on [-1/2, 1/2]
    p = p * r + 1.3406643e-3f;
    p = p * r + 9.6176928e-3f;
    p = p * r + 5.5503104e-2f;
    p = p * r + 2.4022652e-1f;
    p = p * r + 6.9314724e-1f;
    p = p * r + 1.f;
    const float y = p * std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) << 23) + 0x3f800000u);
    return x < -126.f ? 0.f : y;
  }

  RT_INLINE static float log(float x) { return logarithm<false>(x); }
  RT_INLINE static float log2(float x) { return logarithm<true>(x); }  // exact for powers of two

  // log(m 2^e) with m in [sqrt(1/2), sqrt(2)); coefficients of Cephes' logf.
  template <bool kBinary> RT_INLINE static float logarithm(float x) {
    const bool subnormal = x < 1.17549435e-38f;
    const uint32_t bits = std::bit_cast<uint32_t>(subnormal ? x * 8388608.f : x);
    const uint32_t shifted = bits - 0x3f3504f3u;
    const float e = float(int32_t(shifted) >> 23) - (subnormal ? 23.f : 0.f);
    const float f = std::bit_cast<float>((shifted & 0x007fffffu) + 0x3f3504f3u) - 1.f;
    float p = 7.0376836292e-2f;
    p = p * f - 1.1514610310e-1f;
    p = p * f + 1.1676998740e-1f;
    p = p * f - 1.2420140846e-1f;
    p = p * f + 1.4249322787e-1f;
    p = p * f - 1.6668057665e-1f;
    p = p * f + 2.0000714765e-1f;
    p = p * f - 2.4999993993e-1f;
    p = p * f + 3.3333331174e-1f;
    const float z = f * f;
    float y;
    if constexpr (kBinary) {
      y = (f + (p * z * f - 0.5f * z)) * 1.44269504f + e;
    } else {
      y = p * z * f + e * -2.12194440e-4f - 0.5f * z;
      y = f + y + e * 0.693359375f;
    }
    y = x == std::numeric_limits<float>::infinity() ? x : y;
    y = x == 0.f ? -std::numeric_limits<float>::infinity() : y;
    return x >= 0.f ? y : std::numeric_limits<float>::quiet_NaN();
  }

  // The rounding error of 1 + x is made good to first order (Kahan); it is NaN, which is left out, for -1 and infinity.
  // The division is made in any case: behind a condition it would keep a loop from vectorising.
  RT_INLINE static float log1p(float x) {
    const float u = 1.f + x, y = log(u), more = (x - (u - 1.f)) / u;
    return more == more ? y + more : y;
  }

  // The polynomial of exp without its 1 near 0.
  RT_INLINE static float expm1(float x) {
    float p = 1.9875691500e-4f;
    p = p * x + 1.3981999507e-3f;
    p = p * x + 8.3334519073e-3f;
    p = p * x + 4.1665795894e-2f;
    p = p * x + 1.6666665459e-1f;
    p = p * x + 5.0000001201e-1f;
    return std::fabs(x) < 0.34657359f ? p * x * x + x : exp(x) - 1.f;
  }

  RT_INLINE static float tanh(float x) {
    const float a = std::fabs(x), z = x * x;
    float p = -5.70498872745e-3f;  // Cephes' tanhf below 0.625
    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    const float small = p * z * x + x, large = 1.f - 2.f / (exp(2.f * a) + 1.f);
    return a < 0.625f ? small : std::copysign(large, x);
  }

  // x P(x^2) / Q(x^2) on [-4, 4]; outside, |erf| is 1 in float. The rational approximation of XLA and Eigen.
  RT_INLINE static float erf(float x) {
    const float c = x > 4.f ? 4.f : (x < -4.f ? -4.f : x), z = c * c;
    float p = -2.72614225801306e-10f;
    p = p * z + 2.77068142495902e-08f;
    p = p * z - 2.10102402082508e-06f;
    p = p * z - 5.69250639462346e-05f;
    p = p * z - 7.34990630326855e-04f;
    p = p * z - 2.95459980854025e-03f;
    p = p * z - 1.60960333262415e-02f;
    float q = -1.45660718464996e-05f;
    q = q * z - 2.13374055278905e-04f;
    q = q * z - 1.68282697438203e-03f;
    q = q * z - 7.37332916720468e-03f;
    q = q * z - 1.42647390514189e-02f;
    const float y = c * p / q;  // rounding may exceed 1, and give x (1 + erf) the wrong sign
    return y > 1.f ? 1.f : (y < -1.f ? -1.f : y);
  }
};

RT_ISA_END
