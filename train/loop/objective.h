#pragma once
#include <functional>
#include <vector>

#include "nn/ssl/method.h"
#include "train/data/labels.h"

namespace ringtape {

// The result of the forward pass for a batch or a part of it.
struct Outcome {
  Tensor loss;                 // (): the mean over the samples
  Tensor auxiliary_loss = {};  // (): added to the loss in backward, not reported; undefined: none
  Tensor logits = {};          // (B, C), detached; undefined: nothing classifies
  Tensor spread = {};          // (): of a method's outputs (nn/loss/spread.h); undefined with labels
};

// What a step minimises: a function of images, one tensor (B, H, W, C) per view, and labels (B).
using Objective = std::function<Outcome(const Tensors& images, const Labels& labels)>;

// The cross-entropy of the model's logits; of mixed images, that of both labels, by their shares. With `replicas` (not
// null), the replicas compute the logits. `weights`, if not empty, are the factors of the classes: the loss of a whole
// batch is then divided by the sum of its samples' factors, as torch.nn.CrossEntropyLoss does; see Labels::scale.
Objective cross_entropy_of(nn::Module& model, nn::DataParallel* replicas, double label_smoothing,
                           const std::vector<double>& weights = {});
// The loss of a self-supervised method, in f32 regardless of the precision of its outputs. If it has a probe, the
// probe's cross-entropy is the auxiliary loss.
Objective loss_of(nn::Method& method, nn::DataParallel* replicas);

}  // namespace ringtape
