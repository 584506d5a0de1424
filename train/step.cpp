#include "train/step.h"

#include "autograd/autocast.h"
#include "train/weights.h"

namespace ringtape {

Step::Step(nn::Module& model, const TrainOptions& options)
    : model_(model), label_smoothing_(options.label_smoothing), accumulate_(options.accumulate), precision_(parse_dtype(options.precision)),
      parameters_(model), optimizer_(make_optimizer(options, parameters_)),
      scale_(parameters_, {.max_norm = options.clip_grad_norm, .dynamic = precision_ == DType::f16}) {
  if (options.ema > 0) ema_.emplace(parameters_, options.ema);
}

// `share`: of the batch that these samples are.
Step::Result Step::forward_backward(const Tensor& x, const Tensor& y, double share, const std::function<void(Phase)>& ended) {
  const Tensor logits = model_(x);
  const Tensor loss = cross_entropy(logits, y, label_smoothing_);
  if (ended) ended(Phase::forward);
  backward(loss, share == 1 && !scale_.dynamic() ? Tensor{} : scale_.seed(share));
  if (ended) ended(Phase::backward);
  return {loss.detach(), logits.detach()};
}

Step::Result Step::run_parts(const Tensor& x, const Tensor& y, const std::function<void(Phase)>& ended) {
  const int64_t samples = y.size(), parts = std::min(accumulate_, samples);
  Tensor loss;
  Tensors logits;
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t begin = samples * i / parts, end = samples * (i + 1) / parts;
    const double share = double(end - begin) / double(samples);
    const Result part = forward_backward(slice(x, 0, begin, end), slice(y, 0, begin, end), share, ended);
    loss = loss.defined() ? loss + part.loss * share : part.loss * share;
    logits.push_back(part.logits);
  }
  return {loss, concat(logits)};
}

Step::Result Step::run(const Tensor& x, const Tensor& y, double lr, const std::function<void(Phase)>& ended) {
  optimizer_->zero_grad();
  Result out;
  {
    const Autocast autocast(precision_);
    out = accumulate_ > 1 && y.size() > 1 ? run_parts(x, y, ended) : forward_backward(x, y, 1, ended);
  }
  optimizer_->step(lr, scale_.active() ? scale_.factor() : Tensor{});
  if (ema_) ema_->update();
  if (ended) ended(Phase::optimizer);
  return out;
}

std::vector<NamedTensor> Step::state() const {
  std::vector<NamedTensor> out;
  for (const NamedTensor& flat : optimizer_->state())
    for (const NamedTensor& p : parameters_.named(flat.tensor)) out.push_back({flat.name + "." + p.name, in_file_order(p.tensor)});
  if (scale_.dynamic()) out.push_back({"loss_scale", scale_.state()});
  return out;
}

std::vector<NamedTensor> Step::average() const {
  std::vector<NamedTensor> out;
  if (!ema_) return out;
  for (const NamedTensor& p : parameters_.named(ema_->average())) out.push_back({p.name, in_file_order(p.tensor)});
  for (const nn::Named& b : nn::named_buffers(model_)) out.push_back({b.name, b.tensor->detach()});
  return out;
}

}  // namespace ringtape
