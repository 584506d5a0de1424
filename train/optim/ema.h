#pragma once
#include <exception>

#include "kernels/copy.h"
#include "kernels/optimizer.h"
#include "train/optim/flat_parameters.h"

namespace ringtape {

// An exponential moving average of the parameters: after each step, average = decay average + (1 - decay) w. It starts,
// and restarts, with the current parameters. With shards, each rank has the average of its own elements.
class Ema {
 public:
  // `shards`: those of the parameters; null for none. Must outlive this.
  Ema(const FlatParameters& parameters, double decay, const comm::Shards* shards = nullptr)
      : parameters_(parameters), decay_(decay), shards_(shards),
        average_({parameters.own_size()}, parameters.dtype(), parameters.device()) {
    restart();
  }

  void restart() {
    each_own([](const Tensor& average, const Tensor& values) { copy(average, values); });
  }
  void update() {
    each_own([this](const Tensor& average, const Tensor& values) { ema_step(average, values, decay_); });
  }
  const Tensor& average() const { return average_; }  // (own_size())

  // While a Use lives, the model has the averaged parameters. With shards, all ranks create it together.
  class Use {
   public:
    explicit Use(const Ema& ema) : parameters_(ema.parameters_) {
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
    ~Use() {
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
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    const FlatParameters& parameters_;
    Tensors held_, before_;
    const int exceptions_ = std::uncaught_exceptions();
  };

 private:
  template <class F> void each_own(const F& f) const {
    for (const Part& own : parameters_.own()) f(parameters_.own_part(average_, own), parameters_.values(own));
  }

  const FlatParameters& parameters_;
  double decay_;
  const comm::Shards* shards_;
  Tensor average_;
};

}  // namespace ringtape
