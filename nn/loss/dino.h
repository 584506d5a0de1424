#pragma once
#include "core/tensor.h"

namespace ringtape::nn {

// The teacher's codes of DINO (Caron et al., "Emerging properties in self-supervised vision transformers", 2021) for
// its scores (n, K), around their centre (K): softmax((scores - centre) / temperature), without gradient, f32 (f64 for
// f64). swav_loss() of the student's scores and these codes is DINO's loss.
// Errors: ShapeError, UsageError for a temperature not above 0.
Tensor dino_codes(const Tensor& scores, const Tensor& center, double temperature);

}  // namespace ringtape::nn
