#include "train/objective.h"

#include "autograd/autocast.h"
#include "nn/loss/spread.h"

namespace ringtape {

Objective cross_entropy_of(nn::Module& model, nn::DataParallel* replicas, double label_smoothing) {
  return [&model, replicas, label_smoothing](const Tensors& images, const Tensor& labels) -> Outcome {
    const Tensor logits = replicas ? (*replicas)(images[0]) : model(images[0]);
    return {.loss = cross_entropy(logits, labels, label_smoothing), .beside = {}, .logits = logits.detach(), .spread = {}};
  };
}

Objective loss_of(nn::Method& method, nn::DataParallel* replicas) {
  return [&method, replicas](const Tensors& views, const Tensor& labels) -> Outcome {
    Tensors outputs = replicas ? nn::outputs_of(*replicas, views) : method.step_outputs(views);
    const Autocast full(DType::f32);
    Outcome out;
    if (method.has_probe()) {
      out.beside = cross_entropy(outputs.back(), labels);
      out.logits = outputs.back().detach();
      outputs.pop_back();
    }
    out.loss = method.loss(outputs);
    out.spread = nn::spread(method.watched(outputs));
    return out;
  };
}

}  // namespace ringtape
