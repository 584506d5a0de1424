#include "train/optim/optimizer.h"

#include <algorithm>

namespace ringtape {

void Optimizer::fix_lr(const std::string& prefix, double lr) {
  for (const FlatParameters::Parameter& p : parameters_.parameters())
    if (p.name.starts_with(prefix)) fixed_.push_back({p.begin, p.end, lr});
  std::ranges::sort(fixed_, {}, &Fixed::begin);
}

void Optimizer::step(double lr, const Tensor& factor) {
  ++steps_;
  const View multiplier = factor.defined() ? View(factor) : View{};
  const auto learn = [&](int64_t begin, int64_t end, double rate) {
    if (begin < end) update(begin, end, multiplier, rate, steps_);
  };
  for (const auto& [begin, end] : parameters_.with_gradient()) {
    int64_t at = begin;
    for (const Fixed& f : fixed_) {
      if (f.begin < begin || f.end > end) continue;  // in another run
      learn(at, f.begin, lr);
      learn(f.begin, f.end, f.lr);
      at = f.end;
    }
    learn(at, end, lr);
  }
  parameters_.values().storage()->written_by("optimizer step");
}

}  // namespace ringtape
