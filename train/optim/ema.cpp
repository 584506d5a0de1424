#include "train/optim/ema.h"

#include "kernels/copy.h"
#include "kernels/optimizer.h"

namespace ringtape {

Ema::Ema(const FlatParameters& parameters, double decay, const comm::Shards* shards)
    : parameters_(parameters), decay_(decay), shards_(shards),
      average_({parameters.own_size()}, parameters.dtype(), parameters.device()) {
  restart();
}

void Ema::restart() {
  each_own([](const Tensor& average, const Tensor& values) { copy(average, values); });
}

void Ema::update() {
  each_own([this](const Tensor& average, const Tensor& values) { ema_step(average, values, decay_); });
}

Ema::Use::Use(const Ema& ema) : parameters_(ema.parameters_) {
  parameters_.keep_writes();
  const bool common = parameters_.has_common_values();
  if (!common) held_ = {parameters_.held_values()};
  for (const Part& own : parameters_.own())
    if (common) held_.push_back(parameters_.values(own));
  for (const Tensor& held : held_) copy(before_.emplace_back(empty_like(held)), held);
  parameters_.meet();
  ema.each_own([](const Tensor& average, const Tensor& values) { copy(values, average); });
  if (ema.shards_ && parameters_.values().defined() && !common) ema.shards_->gather(parameters_.values());
  parameters_.meet();
  parameters_.written("Ema::Use");
}

Ema::Use::~Use() {
  const bool failed = std::uncaught_exceptions() > exceptions_;
  if (failed && parameters_.has_common_values()) return;  // the job has failed: nobody else may come to meet
  try {
    parameters_.meet();
    for (size_t i = 0; i < held_.size(); ++i) copy(held_[i], before_[i]);
    parameters_.meet();
    parameters_.written("Ema::Use");
  } catch (const Error&) {  // what was on its way will not come: the job has failed, and says so elsewhere
  }
}

}  // namespace ringtape
