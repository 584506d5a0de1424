#pragma once
#include "kernels/copy.h"
#include "kernels/optimizer.h"
#include "train/optim/flat_parameters.h"

namespace ringtape {

// An exponential moving average of the parameters: after each step, average = decay average + (1 - decay) w. It starts
// with the current parameters.
class Ema {
 public:
  Ema(const FlatParameters& parameters, double decay)
      : parameters_(parameters), decay_(decay), average_(copy_of(parameters.values())) {}

  void update() { ema_step(average_, parameters_.values(), decay_); }
  const Tensor& average() const { return average_; }  // flat

  // While a Use lives, the model has the averaged parameters.
  class Use {
   public:
    explicit Use(const Ema& ema) : values_(ema.parameters_.values()), own_(copy_of(values_)) { put(ema.average_); }
    ~Use() { put(own_); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    void put(const Tensor& from) {
      copy(values_, from);
      values_.storage()->written_by("Ema::Use");
    }
    Tensor values_, own_;
  };

 private:
  static Tensor copy_of(const Tensor& x) {
    Tensor out = empty_like(x);
    copy(out, x);
    return out;
  }
  const FlatParameters& parameters_;
  double decay_;
  Tensor average_;
};

}  // namespace ringtape
