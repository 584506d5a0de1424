#pragma once
#include <map>
#include <memory>
#include <string>

#include "train/optim/flat_parameters.h"

namespace ringtape {

// Updates flat parameters from their gradients. A parameter that backward() did not reach stays unchanged, as does its
// state.
class Optimizer {
 public:
  explicit Optimizer(FlatParameters& parameters) : parameters_(parameters) {}
  virtual ~Optimizer() = default;

  // `factor` (1), f32: gradients are multiplied by it first; 0 leaves everything unchanged. Undefined: 1. `squares`:
  // the parameters' gradient_squares(), if they are known and wanted.
  void step(double lr, const Tensor& factor = {}, const Tensor& squares = {});
  virtual bool wants_squares() const { return false; }
  // From now on, parameters whose names begin with `prefix` learn at rate `lr`, whatever rate step() gets. There may be
  // no such parameter.
  void fix_lr(const std::string& prefix, double lr);
  void zero_grad() { parameters_.zero_grad(); }
  int64_t steps() const { return steps_; }  // taken so far

  // State tensors of the size of the parameters, by name, for checkpoints. With steps() and own_steps(), all that a
  // resume needs.
  virtual std::vector<NamedTensor> state() const = 0;
  // For each parameter, the number of steps in which it had a gradient; empty if the rule does not use it or all are
  // steps().
  virtual std::vector<int64_t> own_steps() const { return {}; }
  // Restores both counts. Throws FormatError if `own` does not fit the parameters.
  void set_steps(int64_t steps, const std::vector<int64_t>& own = {});

 protected:
  // Updates elements [begin, end): whole parameters with a gradient. Called at most once per parameter in a step.
  virtual void update(int64_t begin, int64_t end, const View& factor, double lr) = 0;
  virtual void set_own_steps(const std::vector<int64_t>&) {}  // one per parameter
  Tensor part(const Tensor& flat, int64_t begin, int64_t end) const {
    return flat.defined() ? flat.window({end - begin}, {1}, begin) : flat;
  }
  FlatParameters& parameters_;
  Tensor squares_;  // of the gradients of this step, if wanted

 private:
  struct Fixed {
    int64_t end;
    double lr;
  };
  std::map<int64_t, Fixed> fixed_;  // by the parameter's begin
  int64_t steps_ = 0;
};

}  // namespace ringtape
