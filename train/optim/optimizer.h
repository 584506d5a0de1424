#pragma once
#include <map>
#include <memory>
#include <string>

#include "train/optim/flat_parameters.h"

namespace ringtape {

// Updates flat parameters from their gradients. A parameter that backward() did not reach stays as it is, state too.
class Optimizer {
 public:
  explicit Optimizer(FlatParameters& parameters) : parameters_(parameters) {}
  virtual ~Optimizer() = default;

  // `factor` (1), f32: what gradients are multiplied by first; 0 leaves everything as it is. Undefined: 1.
  void step(double lr, const Tensor& factor = {});
  // From now on parameters whose names begin with `prefix` learn at that rate,
  // whatever step() is given; there may be none.
  void fix_lr(const std::string& prefix, double lr);
  void zero_grad() { parameters_.zero_grad(); }
  int64_t steps() const { return steps_; }  // taken so far

  // State of the size of the parameters, by name, for checkpoints; with steps() and
  // own_steps() it is all that a resume needs.
  virtual std::vector<NamedTensor> state() const = 0;
  // Of each parameter the steps in which it had a gradient, where the rule asks for them
  // and they are not all steps(); else none.
  virtual std::vector<int64_t> own_steps() const { return {}; }
  // Both as they were. Throws FormatError where `own` are those of other parameters.
  void set_steps(int64_t steps, const std::vector<int64_t>& own = {});

 protected:
  // Updates elements [begin, end), whole parameters, which have a gradient. Called
  // once at most for each of them in a step.
  virtual void update(int64_t begin, int64_t end, const View& factor, double lr) = 0;
  virtual void set_own_steps(const std::vector<int64_t>&) {}  // one of each parameter
  Tensor part(const Tensor& flat, int64_t begin, int64_t end) const {
    return flat.defined() ? flat.window({end - begin}, {1}, begin) : flat;
  }
  FlatParameters& parameters_;

 private:
  struct Fixed {
    int64_t end;
    double lr;
  };
  std::map<int64_t, Fixed> fixed_;  // by where a parameter begins
  int64_t steps_ = 0;
};

}  // namespace ringtape
