#pragma once
#include <memory>
#include <string>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "nn/batch_norm.h"
#include "train/model/models.h"

// Networks of every name, as after a training: their running statistics are those of no first step.
namespace ringtape::test {

// The settings that make a network small.
inline Settings small_settings(const ModelEntry& entry) {
  Settings out = entry.settings;
  for (const auto& [name, value] :
       {std::pair<const char*, int64_t>{"width", 6}, {"hidden", 8}, {"depth", 10}, {"widen", 1}, {"heads", 2}})
    if (const auto field = find_field(out, name)) *std::get<int64_t*>(*field) = value;
  return out;
}

// Statistics are those of images of noise, and a little away from them, as are weights and biases of normalisations.
inline void pretend_training(nn::Module& network, const Shape& image) {
  const NoGrad no_grad;
  {
    nn::BatchStatistics statistics(network);
    statistics.begin_batch();
    (void)network(randn({8, image[0], image[1], image[2]}));
  }
  for (const nn::Named& b : nn::named_buffers(network))
    if (is_float(b.tensor->dtype())) {
      const Tensor noise = rand(b.tensor->shape(), -0.3, 0.3, b.tensor->dtype());
      *b.tensor = b.name.ends_with("running_var") ? *b.tensor * exp(noise) : *b.tensor + noise * 0.1;
    }
  for (const nn::Named& p : nn::named_parameters(network))
    if (p.tensor->rank() == 1) *p.tensor = leaf(p.tensor->detach() + rand(p.tensor->shape(), -0.3, 0.3));
}

inline std::unique_ptr<nn::Module> trained_model(const ModelEntry& entry, const ModelSpec& spec) {
  manual_seed(1);
  std::unique_ptr<nn::Module> out = entry.make(spec);
  pretend_training(*out, spec.image);
  out->train(false);
  return out;
}

}  // namespace ringtape::test
