#pragma once
#include <cmath>

#include "kernels/cuda/launch.cuh"

namespace ringtape::cuda {
namespace {

// The elementary functions for the tables in kernels/unary.h and binary.h (M there).
struct Math {
  static __device__ float exp(float x) { return expf(x); }
  static __device__ float log(float x) { return logf(x); }
  static __device__ float tanh(float x) { return tanhf(x); }
  static __device__ float erf(float x) { return erff(x); }
  static __device__ float sqrt(float x) { return sqrtf(x); }
  static __device__ float pow(float x, float y) { return powf(x, y); }
  static __device__ float abs(float x) { return fabsf(x); }
  static __device__ double exp(double x) { return ::exp(x); }
  static __device__ double log(double x) { return ::log(x); }
  static __device__ double tanh(double x) { return ::tanh(x); }
  static __device__ double erf(double x) { return ::erf(x); }
  static __device__ double sqrt(double x) { return ::sqrt(x); }
  static __device__ double pow(double x, double y) { return ::pow(x, y); }
  static __device__ double abs(double x) { return ::fabs(x); }
};

}  // namespace
}  // namespace ringtape::cuda
