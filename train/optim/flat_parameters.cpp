#include "train/optim/flat_parameters.h"

#include "kernels/copy.h"

namespace ringtape {

// Each parameter starts on a 64-byte boundary, so that kernels see aligned rows.
static int64_t aligned(int64_t n) { return (n + 15) / 16 * 16; }

FlatParameters::FlatParameters(nn::Module& module, const GradientMemory& memory) {
  const std::vector<nn::Named> named = nn::named_parameters(module);
  RT_CHECK_AS(UsageError, !named.empty(), "a model without parameters cannot be trained");
  const Tensor first = *named[0].tensor;
  int64_t size = 0;
  for (const nn::Named& p : named) {
    RT_CHECK_AS(DTypeError, p.tensor->dtype() == first.dtype() && p.tensor->device() == first.device(), "parameter ",
                p.name, " is ", p.tensor->dtype(), " on ", p.tensor->device(), ", the first one ", first.dtype(),
                " on ", first.device());
    size += aligned(p.tensor->size());
  }
  values_ = zeros({size}, first.dtype(), first.device());
  gradients_ = memory ? memory(size, int64_t(named.size()), first.dtype(), first.device())
                      : zeros({size}, first.dtype(), first.device());
  int64_t begin = 0;
  for (const nn::Named& p : named) {
    Tensor& x = *p.tensor;
    for (const nn::Named& other : named)
      RT_CHECK_AS(UsageError, &other == &p || other.tensor->node() != x.node(), "parameters ", p.name, " and ",
                  other.name, " are one tensor; tied parameters cannot be flattened");
    const Shape shape = x.shape(), strides = contiguous_strides(shape);
    const Tensor view = values_.window(shape, strides, begin);
    copy(view, x);
    x = leaf(view);
    x.node()->grad_slot = gradients_.window(shape, strides, begin);
    parameters_.push_back({p.name, x.node(), begin, begin + aligned(shape.size())});
    begin = parameters_.back().end;
  }
}

std::vector<FlatParameters::Run> FlatParameters::with_gradient() const {
  std::vector<Run> runs;
  for (const Parameter& p : parameters_) {
    if (!p.node->grad.defined()) continue;
    if (!runs.empty() && runs.back().end == p.begin) runs.back().end = p.end;
    else runs.push_back({p.begin, p.end});
  }
  return runs;
}

std::vector<NamedTensor> FlatParameters::named(const Tensor& flat) const {
  std::vector<NamedTensor> out;
  for (const Parameter& p : parameters_) {
    const Shape& shape = p.node->shape;
    out.push_back({p.name, flat.window(shape, contiguous_strides(shape), p.begin)});
  }
  return out;
}

void FlatParameters::zero_grad() {
  for (const Parameter& p : parameters_) p.node->grad = {};
}

}  // namespace ringtape
