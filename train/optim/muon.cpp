#include "train/optim/muon.h"

#include <algorithm>
#include <cmath>

#include "autograd/autocast.h"
#include "autograd/create.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "kernels/copy.h"
#include "kernels/optimizer.h"

namespace ringtape {

Tensor orthogonalized(Tensor x) {
  constexpr double kFirst = 3.4445, kThird = -4.775, kFifth = 2.0315, kLeastNorm = 1e-7;
  constexpr int kIterations = 5;
  const bool tall = x.dim(0) > x.dim(1);
  if (tall) x = transpose(x);
  // The squares of very large or small elements would be infinite or 0: the largest one becomes 1 first.
  constexpr double kLeastElement = 1e-30;
  const Tensor top = clamp(max(abs(x)), kLeastElement, INFINITY);
  x = x / top;
  x = x / maximum(sqrt(sum(square(x))), kLeastNorm / top);
  for (int i = 0; i < kIterations; ++i) {
    const Tensor a = matmul(x, transpose(x));
    x = x * kFirst + matmul(a * kThird + matmul(a, a) * kFifth, x);
  }
  return contiguous(tall ? transpose(x) : x);
}

// The SGD kernel computes the momentum step, with rate -1 from zeros, and later applies the result. `taken`: 1, or 0 if
// the factor is 0.
void Muon::update_matrix(const FlatParameters::Parameter& p, const View& factor, const View& taken,
                         const Again<double>& lr) {
  const NoGrad no_grad;
  const Autocast none(DType::f32);
  const int64_t size = p.node->shape.size(), end = p.begin + size, rows = p.node->shape[0], columns = size / rows;
  const Tensor w = parameters_.values({p.begin, end}), step = zeros({size}, w.dtype(), w.device());
  const Again<SgdStep> first = [this] { return SgdStep{-1, options_.momentum, 0, true}; };
  sgd_step(step, state_part(m_, p.begin, end), parameters_.gradients({p.begin, end}), factor, asked(first));
  const Tensor direction = reshape(orthogonalized(reshape(step, {rows, columns})), {size});
  const double length = std::sqrt(std::max(1.0, double(rows) / double(columns)));
  const Again<SgdStep> last = [lr, length, weight_decay = decay(options_.weight_decay)] {
    return SgdStep{lr() * length, 0, weight_decay / length, false};
  };
  sgd_step(w, View{}, direction, taken, asked(last));
}

void Muon::update(int64_t begin, int64_t end, const View& factor, const Again<double>& lr) {
  const std::vector<FlatParameters::Parameter>& all = parameters_.parameters();
  const Again<double> rest = [this, lr] { return lr() * options_.rest_lr; };
  Tensor gate;
  if (factor.data) {
    const Tensor is_taken({1}, DType::b8, factor.device);
    copy(is_taken, factor);
    gate = cast(is_taken, DType::f32);
  }
  const View taken = gate.defined() ? View(gate) : View{};
  auto at = size_t(std::ranges::lower_bound(all, begin, {}, &FlatParameters::Parameter::begin) - all.begin());
  for (; at < all.size() && all[at].begin < end; ++at) {
    const FlatParameters::Parameter& p = all[at];
    if (p.node->shape.size() == 0) continue;
    if (p.node->shape.rank() < 2) Adam::update(p.begin, p.end, factor, rest);
    else update_matrix(p, factor, taken, lr);
  }
}

void visit(Fields& f, Muon::Options& o) {
  f("momentum", o.momentum, {.help = "momentum of the orthogonalised steps", .unit = "X", .range = kFraction});
  f("weight-decay", o.weight_decay,
    {.help = "weight decay, applied separately from the gradient", .unit = "X", .range = kReal});
  f("rest-lr", o.rest_lr,
    {.help = "learning rate of biases and norms, which AdamW updates, relative to --lr", .unit = "X", .range = kReal});
}

}  // namespace ringtape
