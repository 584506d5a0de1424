#include "train/optim/sgd.h"

namespace ringtape {

void visit_momentum(Fields& f, double& momentum, bool& nesterov) {
  f("momentum", momentum, {.help = "momentum", .unit = "X", .range = kFraction});
  f("nesterov", nesterov, {.help = "Nesterov's momentum"});
}

void visit(Fields& f, Sgd::Options& o) {
  visit_momentum(f, o.momentum, o.nesterov);
  f("weight-decay", o.weight_decay, {.help = "L2 penalty", .unit = "X", .range = kReal});
}

}  // namespace ringtape
