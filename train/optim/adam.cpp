#include "train/optim/adam.h"

#include <algorithm>

#include "kernels/optimizer.h"

namespace ringtape {

// One kernel call per range of parameters with the same number of steps: usually one for all.
void Adam::update(int64_t begin, int64_t end, const View& factor, const Again<double>& lr) {
  const std::vector<FlatParameters::Parameter>& all = parameters_.parameters();
  auto at = size_t(std::ranges::upper_bound(all, begin, {}, &FlatParameters::Parameter::begin) - all.begin()) - 1;
  while (begin < end) {
    const size_t first = at;
    const int64_t number = own_steps_[first];
    int64_t until = begin;
    for (; at < all.size() && all[at].begin < end && own_steps_[at] == number; ++at) until = std::min(all[at].end, end);
    if (begin == until) continue;  // parameters without elements
    const Again<AdamStep> step = [this, lr, first, weight_decay = decay(options_.weight_decay)] {
      return AdamStep{.lr = lr(),
                      .beta1 = options_.beta1,
                      .beta2 = options_.beta2,
                      .eps = options_.eps,
                      .weight_decay = weight_decay,
                      .decoupled = options_.decoupled,
                      .number = own_steps_[first]};
    };
    adam_step(parameters_.values({begin, until}), state_part(m_, begin, until), state_part(v_, begin, until),
              parameters_.gradients({begin, until}), factor, asked(step));
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
