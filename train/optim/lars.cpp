#include "train/optim/lars.h"

#include "kernels/gradient.h"

namespace ringtape {

Lars::Lars(FlatParameters& parameters, Options options)
    : Optimizer(parameters), options_(options),
      velocity_(velocity_for(parameters, options.momentum, options.nesterov)) {
  Tensor cells = parameters.cells().copy_to(Device{});
  for (const FlatParameters::Parameter& p : parameters.parameters()) {
    if (p.node->shape.rank() > 1) continue;
    const Part own = parameters.cells_in({p.begin, p.end});
    for (int64_t c = own.begin; c < own.end; ++c) cells.data<int64_t>()[4 * c + 3] = 0;  // not adapted
  }
  cells_ = cells.copy_to(parameters.values().device());
}

void Lars::update(int64_t begin, int64_t end, const View& factor, double lr) {
  const Part c = parameters_.cells_in({begin, end});
  if (c.size() == 0) return;  // parameters without elements
  const Tensor cells = cells_.window({c.size(), 4}, {4, 1}, 4 * c.begin),
               squares({c.size()}, DType::f64, cells.device());
  cell_squares(squares, parameters_.values(), cells);
  lars_step(parameters_.values(), velocity_.defined() ? View(velocity_) : View{}, parameters_.gradients(), squares,
            part(squares_, c.begin, c.end), cells, factor,
            {lr, options_.momentum, options_.weight_decay, options_.eta, options_.nesterov, options_.clip});
}

void visit(Fields& f, Lars::Options& o) {
  visit_momentum(f, o.momentum, o.nesterov);
  f("weight-decay", o.weight_decay, {.help = "L2 penalty", .unit = "X", .range = kReal});
  f("lars-eta", o.eta,
    {.help = "length of a parameter's step relative to the parameter, before multiplication by --lr",
     .unit = "X",
     .range = kReal});
  f("lars-clip", o.clip, {.help = "use the smaller of --lr and the relative length, not their product"});
}

}  // namespace ringtape
