#include "train/optim/optimizer.h"

#include <algorithm>

namespace ringtape {

void Optimizer::fix_lr(const std::string& prefix, double lr) {
  for (const FlatParameters::Parameter& p : parameters_.parameters())
    if (p.name.starts_with(prefix)) fixed_[p.begin] = {p.end, lr};
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
  ++steps_;
  for (size_t i = 0; i < own_steps_.size(); ++i)
    if (parameters_.has_gradient(i)) ++own_steps_[i];
  if (wants_squares()) {
    squares_ = squares.defined() ? squares : parameters_.gradient_squares();
    value_squares_ = value_squares.defined() ? value_squares : parameters_.value_squares();
  }
  const View multiplier = factor.defined() ? View(factor) : View{};
  const auto learn = [&](int64_t begin, int64_t end, double rate) {
    if (begin < end) update(begin, end, multiplier, rate);
  };
  for (const auto& [begin, end] : parameters_.own_with_gradient()) {
    int64_t at = begin;
    for (const auto& [first, fixed] : fixed_) {
      const int64_t from = std::max(first, at), to = std::min(fixed.end, end);
      if (from >= to) continue;
      learn(at, from, lr);
      learn(from, to, fixed.lr);
      at = to;
    }
    learn(at, end, lr);
  }
  parameters_.written("optimizer step");
}

}  // namespace ringtape
