#include "train/optim/lars.h"

#include <algorithm>

namespace ringtape {

// Elements per chunk. A ResNet-18 has some hundred chunks, enough to keep threads and multiprocessors busy.
constexpr int64_t kChunk = 1 << 16;

Lars::Lars(FlatParameters& parameters, Options options)
    : Optimizer(parameters), options_(options),
      velocity_(velocity_for(parameters, options.momentum, options.nesterov)) {
  std::vector<int64_t> table;
  for (const FlatParameters::Parameter& p : parameters.parameters()) {
    const int64_t n = p.node->shape.size(), count = (n + kChunk - 1) / kChunk,
                  adapted = p.node->shape.rank() > 1 ? count : 0;
    for (int64_t q = 0; q < count; ++q) {
      begins_.push_back(p.begin + q * kChunk);
      table.insert(table.end(), {begins_.back(), p.begin + std::min((q + 1) * kChunk, n), q, adapted});
    }
  }
  const int64_t chunks = int64_t(begins_.size());
  const Device device = parameters.values().device();
  chunks_ = from_host(table, {chunks, 4}, device);
  squares_ = zeros({chunks, 2}, DType::f64, device);
}

void Lars::update(int64_t begin, int64_t end, const View& factor, double lr) {
  const auto first = std::lower_bound(begins_.begin(), begins_.end(), begin) - begins_.begin();
  const auto count = std::lower_bound(begins_.begin(), begins_.end(), end) - begins_.begin() - first;
  const Tensor chunks = chunks_.window({count, 4}, {4, 1}, first * 4),
               squares = squares_.window({count, 2}, {2, 1}, first * 2);
  lars_squares(squares, parameters_.values(), parameters_.gradients(), chunks);
  lars_step(parameters_.values(), velocity_.defined() ? View(velocity_) : View{}, parameters_.gradients(), squares,
            chunks, factor,
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
