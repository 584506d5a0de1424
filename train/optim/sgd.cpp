#include "train/optim/sgd.h"

#include "kernels/optimizer.h"

namespace ringtape {

void visit_momentum(Fields& f, double& momentum, bool& nesterov) {
  f("momentum", momentum, {.help = "momentum", .unit = "X", .range = kFraction});
  f("nesterov", nesterov, {.help = "Nesterov's momentum"});
}

void Sgd::update(int64_t begin, int64_t end, const View& factor, const Again<double>& lr) {
  const Again<SgdStep> step = [this, lr, weight_decay = decay(options_.weight_decay)] {
    return SgdStep{lr(), options_.momentum, weight_decay, options_.nesterov};
  };
  sgd_step(parameters_.values({begin, end}), state_part(velocity_, begin, end), parameters_.gradients({begin, end}),
           factor, asked(step));
}

void visit(Fields& f, Sgd::Options& o) {
  visit_momentum(f, o.momentum, o.nesterov);
  f("weight-decay", o.weight_decay, {.help = "L2 penalty", .unit = "X", .range = kReal});
}

}  // namespace ringtape
