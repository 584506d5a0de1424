#pragma once
#include "kernels/erase.h"
#include "kernels/kernel.h"

namespace ringtape {

// What is drawn for a batch. Shares are multiples of 2^-16, so that products with f32 are exact in f64.
struct Mixture {
  double share = 1;        // of an image's levels,
  Rectangle part = {};     // except here: they are the other image's
  double label_share = 1;  // of an image's label
};
// Depends only on the arguments. Throws UsageError unless alphas are 0 to 1000.
Mixture draw_mixture(const Mixing& what, int64_t height, int64_t width, uint64_t seed, uint64_t epoch, int64_t batch);

// y[b] is the mixture of x[b + 1] with x[b]: y f32 (B, H, W, C), x f32 (B + 1, H, W, C); both contiguous. Every device
// and instruction set gives the same bits.
RT_KERNEL(mix, void(View y, View x, Mixture mixture));

// Products are exact, so that it does not matter whether a compiler fuses them with the sum.
RT_HD inline float mixed(float x, float other, double share) {
  return float(double(x) * share + double(other) * (1 - share));
}

}  // namespace ringtape
