#include "train/optim/adam.h"

#include <algorithm>

namespace ringtape {

Adam::Adam(FlatParameters& parameters, Options options)
    : Optimizer(parameters), m_(zeros({parameters.size()}, parameters.values().dtype(), parameters.values().device())),
      v_(zeros({parameters.size()}, parameters.values().dtype(), parameters.values().device())),
      own_steps_(parameters.parameters().size()), options_(options) {}

std::vector<int64_t> Adam::own_steps() const {
  const bool alike = std::ranges::all_of(own_steps_, [this](int64_t n) { return n == steps(); });
  return alike ? std::vector<int64_t>() : own_steps_;
}

// One kernel call per range of parameters with the same number of steps: usually one for all.
void Adam::update(int64_t begin, int64_t end, const View& factor, double lr) {
  const std::vector<FlatParameters::Parameter>& all = parameters_.parameters();
  auto at = size_t(std::ranges::lower_bound(all, begin, {}, &FlatParameters::Parameter::begin) - all.begin());
  while (begin < end) {
    const int64_t number = own_steps_[at] + 1;
    int64_t until = begin;
    for (; at < all.size() && all[at].begin < end && own_steps_[at] + 1 == number; ++at)
      ++own_steps_[at], until = all[at].end;
    if (begin == until) continue;  // parameters without elements
    adam_step(part(parameters_.values(), begin, until), part(m_, begin, until), part(v_, begin, until),
              part(parameters_.gradients(), begin, until), factor,
              {lr, options_.beta1, options_.beta2, options_.eps, options_.weight_decay, options_.decoupled, number});
    begin = until;
  }
}

void visit(Fields& f, Adam::Options& o) {
  f("beta1", o.beta1, {.help = "decay of the moving average of gradients", .unit = "X", .range = kFraction});
  f("beta2", o.beta2, {.help = "decay of the moving average of squared gradients", .unit = "X", .range = kFraction});
  f("epsilon", o.eps,
    {.help = "added to the square root of the average of squared gradients", .unit = "X", .range = kAboveZero});
  f("weight-decay", o.weight_decay,
    {.help = o.decoupled ? "weight decay, applied separately from the gradient" : "L2 penalty",
     .unit = "X",
     .range = kReal});
}

}  // namespace ringtape
