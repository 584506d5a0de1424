#pragma once
#include "kernels/optimizer.h"
#include "train/optim/optimizer.h"

namespace ringtape {

// Adam, and AdamW when `decoupled`, with PyTorch's formulas (kernels/optimizer.h).
class Adam : public Optimizer {
 public:
  struct Options {
    double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
    double weight_decay = 0;
    bool decoupled = false;
  };
  explicit Adam(FlatParameters& parameters) : Adam(parameters, Options{}) {}
  Adam(FlatParameters& parameters, Options options)
      : Optimizer(parameters), options_(options),
        m_(zeros({parameters.size()}, parameters.values().dtype(), parameters.values().device())),
        v_(zeros({parameters.size()}, parameters.values().dtype(), parameters.values().device())) {}
  std::vector<NamedTensor> state() const override { return {{"m", m_}, {"v", v_}}; }

 private:
  void update(int64_t begin, int64_t end, const View& factor, double lr, int64_t number) override {
    adam_step(part(parameters_.values(), begin, end), part(m_, begin, end), part(v_, begin, end), part(parameters_.gradients(), begin, end),
              factor, {lr, options_.beta1, options_.beta2, options_.eps, options_.weight_decay, options_.decoupled, number});
  }

  Options options_;
  Tensor m_, v_;
};

}  // namespace ringtape
