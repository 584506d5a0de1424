#pragma once
#include <memory>
#include <string>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "train/model/models.h"

// Networks of every name, as after a training: their running statistics are those of no first step.
namespace ringtape::test {

// The settings that make a network small.
inline Settings small_settings(const ModelEntry& entry) {
  Settings out = entry.settings;
  for (const auto& [name, value] :
       {std::pair<const char*, int64_t>{"width", 6}, {"hidden", 8}, {"depth", 10}, {"widen", 1}})
    if (const auto field = find_field(out, name)) *std::get<int64_t*>(*field) = value;
  return out;
}

// Statistics, weights and biases of normalisations become noise around what they are.
inline void pretend_training(nn::Module& network) {
  const NoGrad no_grad;
  for (const nn::Named& b : nn::named_buffers(network))
    if (is_float(b.tensor->dtype())) {
      const Tensor noise = rand(b.tensor->shape(), -0.3, 0.3, b.tensor->dtype());
      *b.tensor = b.name.ends_with("running_var") ? exp(noise) : *b.tensor + noise;
    }
  for (const nn::Named& p : nn::named_parameters(network))
    if (p.tensor->rank() == 1) *p.tensor = leaf(p.tensor->detach() + rand(p.tensor->shape(), -0.3, 0.3));
}

inline std::unique_ptr<nn::Module> trained_model(const ModelEntry& entry, const ModelSpec& spec) {
  manual_seed(1);
  std::unique_ptr<nn::Module> out = entry.make(spec);
  pretend_training(*out);
  out->train(false);
  return out;
}

}  // namespace ringtape::test
