#pragma once
#include "train/optim/sgd.h"

namespace ringtape {

// Layer-wise adaptive rates for large batches, with the rule of Lightning Bolts and solo-learn (kernels/optimizer.h).
// One-dimensional parameters (biases, scales and shifts of norms) get plain SGD without weight decay.
class Lars : public Optimizer {
 public:
  struct Options {
    double momentum = 0.9;
    double weight_decay = 0;
    double eta = 0.02;
    bool nesterov = false;
    bool clip = false;
  };
  explicit Lars(FlatParameters& parameters) : Lars(parameters, Options{}) {}
  Lars(FlatParameters& parameters, Options options);
  std::vector<NamedTensor> state() const override { return velocity_state(velocity_); }
  bool uses_factor() const override { return true; }
  bool repeats() const override { return true; }
  bool set_momentum(double momentum) override { return set_velocity_momentum(options_.momentum, velocity_, momentum); }
  bool wants_squares() const override { return true; }

 private:
  void update(int64_t begin, int64_t end, const View& factor, const Again<double>& lr) override;

  Options options_;
  Tensor velocity_;
  Tensor cells_;  // of kernels/optimizer.h
};
void visit(Fields& f, Lars::Options& o);

}  // namespace ringtape
