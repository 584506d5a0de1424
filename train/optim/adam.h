#pragma once
#include "core/fields.h"
#include "train/optim/optimizer.h"

namespace ringtape {

// Adam, and AdamW when `decoupled`, with PyTorch's formulas (kernels/optimizer.h). As in PyTorch, the bias correction
// of a parameter uses the number of steps in which it had a gradient. A step that is skipped by a factor of 0 is
// counted, since the host does not know that it was skipped.
class Adam : public Optimizer {
 public:
  struct Options {
    double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
    double weight_decay = 0;
    bool decoupled = false;
  };
  explicit Adam(FlatParameters& parameters) : Adam(parameters, Options{}) {}
  Adam(FlatParameters& parameters, Options options)
      : Optimizer(parameters), m_(new_state()), v_(new_state()), options_(options) {}
  std::vector<NamedTensor> state() const override { return {{"m", m_}, {"v", v_}}; }
  bool uses_factor() const override { return true; }
  bool repeats() const override { return true; }
  bool set_momentum(double momentum) override { return options_.beta1 = momentum, true; }

 protected:
  void update(int64_t begin, int64_t end, const View& factor, const Again<double>& lr) override;
  bool uses_own_steps() const override { return true; }

  Tensor m_, v_;

 private:
  Options options_;
};
void visit(Fields& f, Adam::Options& o);

}  // namespace ringtape
