#include "train/objective.h"

#include "autograd/autocast.h"
#include "nn/loss/spread.h"

namespace ringtape {

Objective cross_entropy_of(nn::Module& model, nn::DataParallel* replicas, double label_smoothing) {
  return [&model, replicas, label_smoothing](const Tensors& images, const Tensor& labels) -> Outcome {
    const Tensor logits = replicas ? (*replicas)(images[0]) : model(images[0]);
    return {.loss = cross_entropy(logits, labels, label_smoothing), .logits = logits.detach(), .spread = {}};
  };
}

Objective loss_of(nn::Method& method, nn::DataParallel* replicas) {
  return [&method, replicas](const Tensors& views, const Tensor&) -> Outcome {
    const Tensors outputs = replicas ? nn::outputs_of(*replicas, views) : method.outputs(views);
    const Autocast full(DType::f32);
    return {.loss = method.loss(outputs), .logits = {}, .spread = nn::spread(method.watched(outputs))};
  };
}

}  // namespace ringtape
