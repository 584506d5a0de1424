#pragma once
#include <optional>

#include "kernels/conv_norm.h"

// Convolutions by Hopper's own instructions, on GPUs of compute capability 9.0, in builds for 90a: 3x3 with stride 1
// and padding 1, in bf16 or f16, of images of 32x32 or 16x16 places with 64 channels, or of 32x32, 16x16, 8x8 or 4x4
// with a multiple of 128 channels, as many as before. wgmma_claims() of kernels/conv_norm.h says so.
namespace ringtape::cuda {

constexpr int kWgmmaChannels = 512;  // at most

// Sums that are left for kernels of conv_norm.cu: (number, channels) of what the pass leaves.
struct ConvParts {
  Tensor parts;
  int64_t number;
};

// y = the convolution of x by w; leaves MomentsPart of y. nullopt, without any effect, for other convolutions.
std::optional<ConvParts> wgmma_forward(View y, const NormOperand& x, View w, const Window& window);

// dx = the gradient of that by dy: of a plain x + skip; of a normalised one 0 where its ReLU is, and leaves its
// GradientSums.
std::optional<ConvParts> wgmma_data(View dx, View dy, View w, const NormOperand& x, View skip, const Window& window);

// Parts of the gradient, f32, of weights of shape dw.
std::optional<ConvParts> wgmma_weights(const Shape& dw, View dy, const NormOperand& x, const Window& window);

}  // namespace ringtape::cuda
