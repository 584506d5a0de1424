#include "train/optim/optimizer.h"

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
  set_own_steps(own.empty() ? std::vector<int64_t>(n, steps) : own);
}

void Optimizer::step(double lr, const Tensor& factor, const Tensor& squares) {
  ++steps_;
  if (wants_squares()) squares_ = squares.defined() ? squares : parameters_.gradient_squares();
  const View multiplier = factor.defined() ? View(factor) : View{};
  const auto learn = [&](int64_t begin, int64_t end, double rate) {
    if (begin < end) update(begin, end, multiplier, rate);
  };
  for (const auto& [begin, end] : parameters_.with_gradient()) {
    int64_t at = begin;
    for (auto f = fixed_.lower_bound(begin); f != fixed_.end() && f->first < end; ++f) {
      learn(at, f->first, lr);
      learn(f->first, f->second.end, f->second.lr);
      at = f->second.end;
    }
    learn(at, end, lr);
  }
  parameters_.values().storage()->written_by("optimizer step");
}

}  // namespace ringtape
