#pragma once
#include <functional>

#include "nn/ssl/method.h"

namespace ringtape {

// What a network makes of a batch, or of a part of it.
struct Outcome {
  Tensor loss;    // (): the mean over the samples
  Tensor auxiliary_loss;  // (): added to the loss in backward, not reported; undefined: none
  Tensor logits;  // (B, C), where there are labels to compare them with
  Tensor spread;  // (): of a self-supervised method's outputs, where there are none; see nn/loss/spread.h
};

// What a step minimises, of images, one tensor (B, H, W, C) a view, and labels (B).
using Objective = std::function<Outcome(const Tensors& images, const Tensor& labels)>;

// The cross-entropy of the model's logits; with replicas of it (or null), they make these.
Objective cross_entropy_of(nn::Module& model, nn::DataParallel* replicas, double label_smoothing);
// A method's own loss, in f32 whatever the precision of its outputs; if it has a probe, that one's cross-entropy is the
// auxiliary loss.
Objective loss_of(nn::Method& method, nn::DataParallel* replicas);

}  // namespace ringtape
