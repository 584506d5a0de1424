#include <algorithm>
#include <cmath>

#include "kernels/copy.h"
#include "nn/batch_norm.h"
#include "train/loop/step.h"
#include "train/loop/step_parts.h"
#include "train/weights/weights.h"

// What a step has: for checkpoints and evaluation, and to be counted.
namespace ringtape {

bool Step::finite() const {
  const Tensor host = placement_->value_squares().copy_to(Device{});
  return std::ranges::all_of(host.span<double>(), [](double sum) { return std::isfinite(sum); });
}

// The optimizer's state and the average.
Tensors Step::own_buffers() const {
  Tensors out;
  for (const NamedTensor& t : optimizer_->state()) out.push_back(t.tensor);
  if (ema_) out.push_back(ema_->average());
  return out;
}

int64_t Step::state_bytes() const {
  Tensors all = own_buffers();
  all.push_back(placement_->parameters().gradients());
  for (const nn::Named& f : nn::named_frozen(model_)) all.push_back(*f.tensor);
  int64_t bytes = placement_->weight_bytes();
  for (const Tensor& t : all) bytes += t.size() * int64_t(size_of(t.dtype()));
  return bytes;
}

std::vector<Tensor> Step::replicated() const {
  std::vector<Tensor> out = placement_->replicated(own_buffers());
  if (scale_.dynamic()) out.push_back(scale_.state());
  for (const nn::Named& f : nn::named_frozen(model_)) out.push_back(*f.tensor);
  for (const Tensor& b : buffers()) out.push_back(b);
  return out;
}

std::vector<Tensor> Step::buffers() const {
  std::vector<Tensor> out;
  for (const nn::Named& b : nn::named_buffers(model_))
    if (!placement_->divided(b)) out.push_back(b.tensor->detach());
  return out;
}

std::vector<FileTensor> Step::weights() const {
  const Tensor& own = placement_->parameters().own_values();
  if (!own.defined()) return placement_->all_weights();
  std::vector<FileTensor> out = files("", own);
  add_buffers(out, {});
  return out;
}

void Step::set_average_statistics() {
  Tensors now;
  for (const Tensor* t : nn::running_statistics(model_)) now.push_back(*t);
  if (average_statistics_.empty()) average_statistics_ = clones(now);
  else copy_all(average_statistics_, now);
}

void Step::add_buffers(std::vector<FileTensor>& tensors, const Tensors& statistics) const {
  const std::vector<Tensor*> running = nn::running_statistics(model_);
  for (const nn::Named& f : nn::named_frozen(model_)) tensors.push_back(NamedTensor{f.name, in_file_order(*f.tensor)});
  for (const nn::Named& b : nn::named_buffers(model_)) {
    if (std::optional<FileTensor> divided = placement_->divided(b)) {
      tensors.push_back(std::move(*divided));
      continue;
    }
    const auto found = statistics.empty() ? running.end() : std::ranges::find(running, b.tensor);
    const Tensor& values = found == running.end() ? *b.tensor : statistics[size_t(found - running.begin())];
    tensors.push_back(NamedTensor{b.name, in_file_order(values)});
  }
}

// Of each parameter the tensor in a buffer.
std::vector<FileTensor> Step::files(const std::string& prefix, const Tensor& buffer) const {
  std::vector<FileTensor> out;
  for (const FlatParameters::Parameter& p : placement_->parameters().parameters())
    out.push_back(placement_->file(prefix + p.name, p, buffer));
  return out;
}

std::vector<FileTensor> Step::state() const {
  std::vector<FileTensor> out;
  for (const NamedTensor& state : optimizer_->state())
    std::ranges::move(files(state.name + ".", state.tensor), std::back_inserter(out));
  if (scale_.dynamic()) out.push_back(NamedTensor{"loss_scale", scale_.state()});
  return out;
}

std::vector<FileTensor> Step::average() const {
  if (!ema_) return {};
  std::vector<FileTensor> out = files("", ema_->average());
  add_buffers(out, average_statistics_);
  return out;
}

}  // namespace ringtape
