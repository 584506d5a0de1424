#pragma once
#include <memory>
#include <string>

#include "core/again.h"
#include "train/optim/flat_parameters.h"
#include "train/optim/parameter_rules.h"

namespace ringtape {

// Updates flat parameters from their gradients: the own elements of FlatParameters, for which alone it has state. A
// parameter that backward() did not reach stays unchanged, as does its state.
class Optimizer {
 public:
  explicit Optimizer(FlatParameters& parameters)
      : parameters_(parameters), own_steps_(parameters.parameters().size()), rules_(own_steps_.size()) {}
  virtual ~Optimizer() = default;

  // `factor` (1), f32: gradients are multiplied by it first; 0 leaves everything unchanged. Undefined: 1. `squares`,
  // `value_squares`: the parameters' gradient_squares() and value_squares(), of all ranks together, if they are wanted;
  // undefined: this rank has all.
  void step(double lr, const Tensor& factor = {}, const Tensor& squares = {}, const Tensor& value_squares = {});
  virtual bool wants_squares() const { return false; }
  // Whether update() multiplies gradients by its `factor`, and changes nothing where that is 0. Of another rule, step()
  // waits for the factor, multiplies the gradients itself, and skips the update for 0.
  virtual bool uses_factor() const { return false; }
  // Whether a recorded step() can be repeated: its kernels ask again for all that differs from step to step (Again),
  // and it uses the factor.
  virtual bool repeats() const { return false; }
  // What step() does on the host, for a step that repeats the work of one that reached the same parameters.
  void repeat(double lr, const std::vector<char>& reached);
  std::vector<char> reached() const;  // for each parameter, whether it has a gradient
  // For each parameter, the number of steps without a gradient; a repeated step needs the same.
  std::vector<int64_t> missed_steps() const;
  // From now on, each parameter learns by its own rule; one for each of FlatParameters::parameters().
  void set_rules(std::vector<ParameterRule> rules);
  // From now on, parameters whose names begin with `prefix` learn at rate `lr`, whatever rate step() gets. There may be
  // no such parameter.
  void fix_lr(const std::string& prefix, double lr);
  // From now on; of Adam: beta1. Returns false if this optimizer has no momentum.
  virtual bool set_momentum(double /*momentum*/) { return false; }
  void zero_grad() { parameters_.zero_grad(); }
  int64_t steps() const { return steps_; }  // taken so far

  // State tensors (own_size()) of the parameters, by name, for checkpoints. With steps() and own_steps(), all that a
  // resume needs.
  virtual std::vector<NamedTensor> state() const = 0;
  // For each parameter, the number of steps in which it had a gradient; empty if the rule does not use it or all are
  // steps().
  std::vector<int64_t> own_steps() const;
  // Restores both counts. Throws FormatError if `own` does not fit the parameters.
  void set_steps(int64_t steps, const std::vector<int64_t>& own = {});

 protected:
  // Updates own elements [begin, end), which follow one another, of parameters with a gradient and the same rule, at
  // rate lr(). Called at most once per element in a step. `factor` has no data unless uses_factor().
  virtual void update(int64_t begin, int64_t end, const View& factor, const Again<double>& lr) = 0;
  virtual bool uses_own_steps() const { return false; }
  Tensor state_part(const Tensor& state, int64_t begin, int64_t end) const {
    return parameters_.own_part(state, {begin, end});
  }
  Tensor new_state() const;  // zeros
  // In update(): the weight decay of these elements, which the optimizer's settings say.
  double decay(double weight_decay) const { return decay_factor_ * weight_decay; }
  FlatParameters& parameters_;
  Tensor squares_, value_squares_;  // of this step, if wanted
  std::vector<int64_t> own_steps_;  // one per parameter

 private:
  void count(double lr, const std::vector<char>& reached);
  void multiply_gradients(const Tensor& factor);

  std::vector<ParameterRule> rules_;  // one per parameter
  double decay_factor_ = 1;           // in update()
  double lr_ = 0;                     // of this step
  int64_t steps_ = 0;
};

}  // namespace ringtape
