#include "train/optim/optimizer.h"

#include <algorithm>

#include "autograd/ops.h"
#include "autograd/tape.h"
#include "kernels/binary.h"

namespace ringtape {

void Optimizer::fix_lr(const std::string& prefix, double lr) {
  const std::vector<FlatParameters::Parameter>& all = parameters_.parameters();
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i].name.starts_with(prefix)) rules_[i].fixed_lr = lr;
}

void Optimizer::set_rules(std::vector<ParameterRule> rules) {
  RT_CHECK_AS(UsageError, rules.size() == rules_.size(), "set_rules: ", rules.size(), " rules for ", rules_.size(),
              " parameters");
  rules_ = std::move(rules);
}

void Optimizer::set_steps(int64_t steps, const std::vector<int64_t>& own) {
  const size_t n = parameters_.parameters().size();
  RT_CHECK_AS(FormatError, own.empty() || own.size() == n, "the steps of ", own.size(), " parameters for a model of ",
              n);
  for (const int64_t count : own)
    RT_CHECK_AS(FormatError, count >= 0 && count <= steps, "a parameter that has taken ", count, " of ", steps,
                " steps");
  steps_ = steps;
  own_steps_ = own.empty() ? std::vector<int64_t>(n, steps) : own;
}

std::vector<int64_t> Optimizer::own_steps() const {
  const bool alike = std::ranges::all_of(own_steps_, [this](int64_t n) { return n == steps_; });
  return alike || !uses_own_steps() ? std::vector<int64_t>() : own_steps_;
}

Tensor Optimizer::new_state() const {
  return zeros({parameters_.own_size()}, parameters_.dtype(), parameters_.device());
}

void Optimizer::step(double lr, const Tensor& factor, const Tensor& squares, const Tensor& value_squares) {
  const std::vector<FlatParameters::Parameter>& all = parameters_.parameters();
  RT_CHECK_AS(AutogradError, std::ranges::any_of(all, [](const auto& p) { return p.tensor->node() == p.node; }),
              "optimizer step: the module has other parameters now; move or cast it, or make a FlatParameters or Step "
              "of it, before the optimizer that is to train it");
  count(lr, reached());
  if (wants_squares()) {
    squares_ = squares.defined() ? squares : parameters_.gradient_squares();
    value_squares_ = value_squares.defined() ? value_squares : parameters_.value_squares();
  }
  const bool multiplied = factor.defined() && !uses_factor();
  if (multiplied && factor.item() == 0) return;
  if (multiplied) multiply_gradients(factor);
  const View multiplier = factor.defined() && !multiplied ? View(factor) : View{};
  for (const auto& [begin, end] : parameters_.own_with_gradient()) {
    size_t i = 0;
    while (all[i].end <= begin) ++i;
    for (int64_t at = begin, to = begin; at < end; at = to) {
      const ParameterRule& rule = rules_[i];
      for (; i < all.size() && all[i].begin < end && rules_[i] == rule; ++i) to = std::min(all[i].end, end);
      decay_factor_ = rule.decay_factor;
      const Again<double> rate = [this, &rule] { return rule.fixed_lr ? *rule.fixed_lr : lr_ * rule.lr_factor; };
      if (at < to) update(at, to, multiplier, rate);
    }
  }
  parameters_.written("optimizer step");
}

void Optimizer::multiply_gradients(const Tensor& factor) {
  for (const Part& run : parameters_.own_with_gradient()) {
    const Tensor gradients = parameters_.gradients(run);
    mul_forward(gradients, gradients, factor);
  }
  const NoGrad no_grad;
  if (wants_squares()) squares_ = squares_ * cast(square(factor), squares_.dtype());
}

void Optimizer::count(double lr, const std::vector<char>& reached) {
  lr_ = lr;
  ++steps_;
  for (size_t i = 0; i < own_steps_.size(); ++i) own_steps_[i] += reached[i];
}

void Optimizer::repeat(double lr, const std::vector<char>& reached) {
  count(lr, reached);
  parameters_.written("optimizer step");
}

std::vector<char> Optimizer::reached() const {
  std::vector<char> out;
  for (size_t i = 0; i < own_steps_.size(); ++i) out.push_back(parameters_.has_gradient(i));
  return out;
}

std::vector<int64_t> Optimizer::missed_steps() const {
  std::vector<int64_t> out;
  for (const int64_t own : own_steps_) out.push_back(steps_ - own);
  return out;
}

}  // namespace ringtape
