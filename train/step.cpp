#include "train/step.h"

#include "autograd/create.h"

namespace ringtape {

Step::Step(nn::Module& model, const TrainOptions& options)
    : model_(model), label_smoothing_(options.label_smoothing), accumulate_(options.accumulate), parameters_(model),
      optimizer_(make_optimizer(options, parameters_)) {}

// `share`: of the batch that these samples are.
Step::Result Step::forward_backward(const Tensor& x, const Tensor& y, double share, const std::function<void(Phase)>& ended) {
  const Tensor logits = model_(x);
  const Tensor loss = cross_entropy(logits, y, label_smoothing_);
  if (ended) ended(Phase::forward);
  backward(loss, share == 1 ? Tensor{} : full({}, share, loss.dtype(), loss.device()));
  if (ended) ended(Phase::backward);
  return {loss.detach(), logits.detach()};
}

Step::Result Step::run(const Tensor& x, const Tensor& y, double lr, const std::function<void(Phase)>& ended) {
  optimizer_->zero_grad();
  const int64_t samples = y.size(), parts = std::min(accumulate_, samples);
  Result out;
  if (parts == 1) {
    out = forward_backward(x, y, 1, ended);
  } else {
    Tensors logits;
    for (int64_t i = 0; i < parts; ++i) {
      const int64_t begin = samples * i / parts, end = samples * (i + 1) / parts;
      const double share = double(end - begin) / double(samples);
      const Result part = forward_backward(slice(x, 0, begin, end), slice(y, 0, begin, end), share, ended);
      logits.push_back(part.logits);
      out.loss = i == 0 ? part.loss * share : out.loss + part.loss * share;
    }
    out.logits = concat(logits);
  }
  optimizer_->step(lr);
  if (ended) ended(Phase::optimizer);
  return out;
}

std::vector<NamedTensor> Step::state() const {
  std::vector<NamedTensor> out;
  const auto add = [&](const std::string& what, const Tensor& flat) {
    for (const NamedTensor& p : parameters_.named(flat)) out.push_back({what + "." + p.name, p.tensor});
  };
  for (const NamedTensor& flat : optimizer_->state()) add(flat.name, flat.tensor);
  return out;
}

}  // namespace ringtape
