#include "train/optimizers.h"

#include "train/optim/adam.h"
#include "train/optim/lars.h"
#include "train/optim/sgd.h"
#include "train/suggest.h"

namespace ringtape {
namespace {

std::unique_ptr<Optimizer> make_sgd(const TrainOptions& o, FlatParameters& parameters) {
  return std::make_unique<Sgd>(parameters, Sgd::Options{o.momentum, o.weight_decay, o.nesterov});
}

std::unique_ptr<Optimizer> make_lars(const TrainOptions& o, FlatParameters& parameters) {
  return std::make_unique<Lars>(parameters, Lars::Options{o.momentum, o.weight_decay, o.lars_eta, o.nesterov, o.lars_clip});
}

template <bool kDecoupled>
std::unique_ptr<Optimizer> make_adam(const TrainOptions& o, FlatParameters& parameters) {
  Adam::Options options;
  options.weight_decay = o.weight_decay;
  options.decoupled = kDecoupled;
  return std::make_unique<Adam>(parameters, options);
}

const OptimizerEntry kOptimizers[] = {
    {"sgd", make_sgd},
    {"adam", make_adam<false>},
    {"adamw", make_adam<true>},
    {"lars", make_lars},
};

}  // namespace

std::span<const OptimizerEntry> optimizers() { return kOptimizers; }

std::unique_ptr<Optimizer> make_optimizer(const TrainOptions& options, FlatParameters& parameters) {
  for (const OptimizerEntry& entry : kOptimizers)
    if (options.optimizer == entry.name) return entry.make(options, parameters);
  throw UsageError(unknown("optimizer", options.optimizer, optimizer_names()));
}

}  // namespace ringtape
