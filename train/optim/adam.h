#pragma once
#include "core/fields.h"
#include "kernels/optimizer.h"
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
  Adam(FlatParameters& parameters, Options options);
  std::vector<NamedTensor> state() const override { return {{"m", m_}, {"v", v_}}; }
  std::vector<int64_t> own_steps() const override;

 protected:
  void update(int64_t begin, int64_t end, const View& factor, double lr) override;

  Tensor m_, v_;
  std::vector<int64_t> own_steps_;  // one per parameter

 private:
  void set_own_steps(const std::vector<int64_t>& steps) override { own_steps_ = steps; }

  Options options_;
};
void visit(Fields& f, Adam::Options& o);

}  // namespace ringtape
