#pragma once
#include <functional>

#include "nn/ssl/method.h"

namespace ringtape {

// What a network makes of a batch, or of a part of it.
struct Outcome {
  Tensor loss;    // (): the mean over the samples
  Tensor beside;  // (): what is minimised besides, if anything, and not reported
  Tensor logits;  // (B, C), where there are labels to compare them with
  Tensor spread;  // (): of a self-supervised method's outputs, where there are none; see nn/loss/spread.h
};

// What a step minimises, of images, one tensor (B, H, W, C) a view, and labels (B).
using Objective = std::function<Outcome(const Tensors& images, const Tensor& labels)>;

// The cross-entropy of the model's logits; with replicas of it (or null), they make these.
Objective cross_entropy_of(nn::Module& model, nn::DataParallel* replicas, double label_smoothing);
// A method's own loss, in f32 whatever the precision of what it is of; beside it, if it has a probe, the cross-entropy of that.
Objective loss_of(nn::Method& method, nn::DataParallel* replicas);

}  // namespace ringtape
