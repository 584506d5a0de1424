#pragma once
#include <exception>

#include "train/optim/flat_parameters.h"

namespace ringtape {

// An exponential moving average of the parameters: after each step, average = decay average + (1 - decay) w. It starts,
// and restarts, with the current parameters. With shards, each rank has the average of its own elements.
class Ema {
 public:
  // `shards`: those of the parameters; null for none. Must outlive this.
  Ema(const FlatParameters& parameters, double decay, const comm::Shards* shards = nullptr);

  void restart();
  void update();
  const Tensor& average() const { return average_; }  // (own_size())

  // While a Use lives, the model has the averaged parameters. With shards, all ranks create it together.
  class Use {
   public:
    explicit Use(const Ema& ema);
    ~Use();
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
