#include "train/optim/lars.h"

#include "kernels/gradient.h"
#include "kernels/optimizer.h"

namespace ringtape {

Lars::Lars(FlatParameters& parameters, Options options)
    : Optimizer(parameters), options_(options),
      velocity_(velocity_for(options.momentum, options.nesterov, new_state())) {
  Tensor cells = parameters.cells().copy_to(Device{});
  for (const FlatParameters::Parameter& p : parameters.parameters()) {
    if (p.node->shape.rank() > 1) continue;
    const Part own = parameters.cells_in({p.begin, p.end});
    for (int64_t c = own.begin; c < own.end; ++c) cells.data<int64_t>()[4 * c + 3] = 0;  // not adapted
  }
  cells_ = cells.copy_to(parameters.device());
}

void Lars::update(int64_t begin, int64_t end, const View& factor, const Again<double>& lr) {
  const Part own = parameters_.cells_in({begin, end});
  if (own.size() == 0) return;
  // The cells of all these parameters, also those of other ranks.
  const auto table = parameters_.cells().span<int64_t>();
  const int64_t last = own.end - 1, first = own.begin - table[size_t(4 * own.begin + 2)],
                count = last - table[size_t(4 * last + 2)] + table[size_t(4 * last + 3)] - first;
  const Tensor w({count}, DType::f64, cells_.device()), g = empty_like(w);
  const Tensor cells = cells_.window({count, 4}, {4, 1}, 4 * first);
  parameter_squares(w, value_squares_.window({count}, {1}, first), cells);
  parameter_squares(g, squares_.window({count}, {1}, first), cells);
  const Again<LarsStep> step = [this, lr, begin, weight_decay = decay(options_.weight_decay)] {
    return LarsStep{.lr = lr(),
                    .momentum = options_.momentum,
                    .weight_decay = weight_decay,
                    .eta = options_.eta,
                    .nesterov = options_.nesterov,
                    .clip = options_.clip,
                    .first = begin};
  };
  lars_step(parameters_.values({begin, end}), state_part(velocity_, begin, end), parameters_.gradients({begin, end}),
            w.window({own.size()}, {1}, own.begin - first), g.window({own.size()}, {1}, own.begin - first),
            cells_.window({own.size(), 4}, {4, 1}, 4 * own.begin), factor, asked(step));
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
