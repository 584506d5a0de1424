#pragma once
#include "core/fields.h"
#include "train/optim/optimizer.h"

namespace ringtape {

// The velocity of momentum: `zeros`; undefined for momentum 0. Since the velocity starts at zero, the first step needs
// no special case: momentum 0 + g is the gradient itself. Throws UsageError for nesterov without momentum.
inline Tensor velocity_for(double momentum, bool nesterov, const Tensor& zeros) {
  RT_CHECK_AS(UsageError, !nesterov || momentum > 0, "--nesterov: needs a --momentum above 0");
  return momentum == 0 ? Tensor() : zeros;
}
inline std::vector<NamedTensor> velocity_state(const Tensor& velocity) {
  if (!velocity.defined()) return {};
  return {{"velocity", velocity}};
}

inline bool set_velocity_momentum(double& own, const Tensor& velocity, double momentum) {
  if (velocity.defined()) own = momentum;
  return velocity.defined();
}

// The settings of an optimizer with momentum.
void visit_momentum(Fields& f, double& momentum, bool& nesterov);

// Stochastic gradient descent, with PyTorch's formulas (kernels/optimizer.h).
class Sgd : public Optimizer {
 public:
  struct Options {
    double momentum = 0;
    double weight_decay = 0;
    bool nesterov = false;
  };
  explicit Sgd(FlatParameters& parameters) : Sgd(parameters, Options{}) {}
  Sgd(FlatParameters& parameters, Options options)
      : Optimizer(parameters), options_(options),
        velocity_(velocity_for(options.momentum, options.nesterov, new_state())) {}
  std::vector<NamedTensor> state() const override { return velocity_state(velocity_); }
  bool uses_factor() const override { return true; }
  bool repeats() const override { return true; }
  bool set_momentum(double momentum) override { return set_velocity_momentum(options_.momentum, velocity_, momentum); }

 private:
  void update(int64_t begin, int64_t end, const View& factor, const Again<double>& lr) override;

  Options options_;
  Tensor velocity_;
};
void visit(Fields& f, Sgd::Options& o);

}  // namespace ringtape
