#pragma once
#include "core/tensor.h"
#include "kernels/cuda/norm_channels.cuh"

// The values per channel of convolutions that are fused with batch normalisation: those that they are given, and the
// sums that they leave in parts (number, channels).
namespace ringtape::cuda {
namespace {

using ChannelsF = Channels<float>;

inline ChannelsF channels_of(const Tensor& mean, const Tensor& var, const Tensor& w, double eps) {
  return {View(mean), View(var), View(w), eps};
}

// Sums that a block or a tile leaves for a channel.
struct alignas(16) MomentsPart {
  Moments<float>::Acc moments;
  __device__ operator Moments<float>::Acc() const { return moments; }
};
struct alignas(8) GradientSums {  // of dz, and of dz times the image's distance from its mean
  float db, dw;
};

}  // namespace
}  // namespace ringtape::cuda
