#pragma once
#include <cmath>

#include "kernels/cuda/launch.cuh"

namespace ringtape::cuda {
namespace {

// The elementary functions for the tables in kernels/unary.h and binary.h (M there).
struct Math {
  static __device__ float exp(float x) { return expf(x); }
  static __device__ float exp2(float x) { return exp2f(x); }
  static __device__ float log(float x) { return logf(x); }
  static __device__ float tanh(float x) { return tanhf(x); }
  static __device__ float erf(float x) { return erff(x); }
  static __device__ float sqrt(float x) { return sqrtf(x); }
  static __device__ float pow(float x, float y) { return powf(x, y); }
  static __device__ float abs(float x) { return fabsf(x); }
  static __device__ float log1p(float x) { return log1pf(x); }
  static __device__ float expm1(float x) { return expm1f(x); }
  static __device__ float sin(float x) { return sinf(x); }
  static __device__ float cos(float x) { return cosf(x); }
  static __device__ float floor(float x) { return floorf(x); }
  static __device__ float ceil(float x) { return ceilf(x); }
  static __device__ float trunc(float x) { return truncf(x); }
  static __device__ float round(float x) { return rintf(x); }
  static __device__ float atan2(float y, float x) { return atan2f(y, x); }
  static __device__ float fmod(float x, float y) { return fmodf(x, y); }
  static __device__ float log2(float x) { return log2f(x); }
  static __device__ double exp(double x) { return ::exp(x); }
  static __device__ double exp2(double x) { return ::exp2(x); }
  static __device__ double log(double x) { return ::log(x); }
  static __device__ double tanh(double x) { return ::tanh(x); }
  static __device__ double erf(double x) { return ::erf(x); }
  static __device__ double sqrt(double x) { return ::sqrt(x); }
  static __device__ double pow(double x, double y) { return ::pow(x, y); }
  static __device__ double abs(double x) { return ::fabs(x); }
  static __device__ double log1p(double x) { return ::log1p(x); }
  static __device__ double expm1(double x) { return ::expm1(x); }
  static __device__ double sin(double x) { return ::sin(x); }
  static __device__ double cos(double x) { return ::cos(x); }
  static __device__ double floor(double x) { return ::floor(x); }
  static __device__ double ceil(double x) { return ::ceil(x); }
  static __device__ double trunc(double x) { return ::trunc(x); }
  static __device__ double round(double x) { return ::rint(x); }
  static __device__ double atan2(double y, double x) { return ::atan2(y, x); }
  static __device__ double fmod(double x, double y) { return ::fmod(x, y); }
  static __device__ double log2(double x) { return ::log2(x); }
  // As in Python: the remainder has the sign of b; the quotient is the whole number that belongs to it.
  template <class T> static __device__ T remainder(T a, T b) {
    const T r = fmod(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
  }
  template <class T> static __device__ T quotient(T a, T b) {
    const T r = fmod(a, b);
    return b == 0 ? a / b : round((a - r) / b - (r != 0 && (r < 0) != (b < 0) ? 1 : 0));
  }
};

}  // namespace
}  // namespace ringtape::cuda
