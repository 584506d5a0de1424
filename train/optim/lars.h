#pragma once
#include <vector>

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

 private:
  void update(int64_t begin, int64_t end, const View& factor, double lr) override;

  Options options_;
  Tensor velocity_;
  std::vector<int64_t> begins_;  // of the chunks of kernels/optimizer.h
  Tensor chunks_, squares_;
};
void visit(Fields& f, Lars::Options& o);

}  // namespace ringtape
