#pragma once
#include <vector>

#include "core/tensor.h"

namespace ringtape {

// The value of each byte of a channel, f32 (C, 256): (byte / 255 - mean) / deviation, in the order and precision of
// torchvision's ToTensor and Normalize.
Tensor byte_table(const std::vector<float>& mean, const std::vector<float>& deviation, Device device = {});

// Images u8 (N, H, W, C), contiguous, by that table, on the same device: f32.
Tensor normalized(const Tensor& images, const Tensor& table);

}  // namespace ringtape
