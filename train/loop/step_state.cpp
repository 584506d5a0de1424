#include <algorithm>
#include <cmath>

#include "kernels/copy.h"
#include "nn/batch_norm.h"
#include "train/loop/step.h"
#include "train/loop/step_parts.h"
#include "train/weights/weights.h"

// What a step has: for checkpoints and evaluation, and to be counted.
namespace ringtape {

comm::Reducer::Totals Step::traffic() const {
  comm::Reducer::Totals out = reducer_ ? reducer_->totals() : comm::Reducer::Totals{};
  if (!shards_) return out;
  const auto add = [&out](int64_t gathered, const auto& totals) {
    out.bytes += gathered / 2;  // a gather is half of an all-reduce
    out.communicating += totals.communicating, out.exposed += totals.exposed;
  };
  if (teacher_) add(teacher_->buffer().totals().bytes, teacher_->buffer().totals());
  if (weights_) add(weights_->totals().bytes, weights_->totals());
  else if (!parameters_.has_common_values())
    add(out.steps * parameters_.size() * int64_t(size_of(parameters_.dtype())), shards_->totals());
  return out;
}

bool Step::finite() const {
  const Tensor squares = parameters_.value_squares();
  if (weights_) group_->all_reduce(squares).wait();
  const Tensor host = squares.copy_to(Device{});
  return std::ranges::all_of(host.span<double>(), [](double sum) { return std::isfinite(sum); });
}

int64_t Step::state_bytes() const {
  std::vector<Tensor> all = {parameters_.gradients()};
  for (const NamedTensor& t : optimizer_->state()) all.push_back(t.tensor);
  if (ema_) all.push_back(ema_->average());
  if (teacher_) all.push_back(teacher_->own());
  int64_t bytes = parameters_.held_values().size() * int64_t(size_of(parameters_.dtype())) /
                  (parameters_.has_common_values() ? group_->size() : 1);
  if (weights_) bytes += weights_->kept_within();
  bytes += teacher_ ? teacher_->buffer().kept_within()
                    : nn::count_teacher(model_) * int64_t(size_of(parameters_.dtype()));
  for (const nn::Named& f : nn::named_frozen(model_)) all.push_back(*f.tensor);
  for (const Tensor& t : all) bytes += t.size() * int64_t(size_of(t.dtype()));
  return bytes;
}

void Step::write_weights(const std::function<void()>& f) const {
  parameters_.meet();
  if (!parameters_.has_common_values() || group_->rank() == 0) f();
  parameters_.meet();
}

void Step::restart_average() {
  if (ema_) ema_->restart();
}

std::vector<Tensor> Step::replicated() const {
  std::vector<Tensor> out;
  if (!weights_ && !parameters_.has_common_values()) out.push_back(parameters_.values());
  for (const NamedTensor& t : optimizer_->state())
    if (!shards_) out.push_back(t.tensor);
  if (scale_.dynamic()) out.push_back(scale_.state());
  if (ema_ && !shards_) out.push_back(ema_->average());
  for (const nn::Named& f : nn::named_frozen(model_)) out.push_back(*f.tensor);
  for (const Tensor& b : buffers()) out.push_back(b);
  return out;
}

std::vector<Tensor> Step::buffers() const {
  std::vector<Tensor> out;
  for (const nn::Named& b : nn::named_buffers(model_))
    if (!teacher_ || !teacher_->followed_by(b.tensor)) out.push_back(b.tensor->detach());
  return out;
}

void Step::exchange(const std::function<void()>& f) const {
  const auto fetch = [this](int64_t which) {
    return [this, which](size_t, Part part) { return exchange_->get(which, part); };
  };
  if (weights_) weights_->fetch_by(fetch(weights_index()));
  if (teacher_) teacher_->buffer().fetch_by(fetch(weights_index() + 1));
  if (group_->rank() == 0) f();
  if (exchange_ && group_->rank() == 0) exchange_->finish();
  else if (exchange_) exchange_->serve();
  if (weights_) weights_->fetch_by({});
  if (teacher_) teacher_->buffer().fetch_by({});
  parameters_.meet();
}

// Of the exchange: after the optimizer's state and the average; the teacher's follow.
int64_t Step::weights_index() const { return int64_t(optimizer_->state().size()) + (ema_ ? 1 : 0); }

std::vector<FileTensor> Step::weights() const {
  if (!weights_) return file_tensors(weights_of(model_));
  std::vector<FileTensor> out;
  for (const FlatParameters::Parameter& p : parameters_.parameters())
    out.push_back(held(p.name, p, parameters_.own_values(), weights_index()));
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
    const FlatParameters::Parameter* const followed = teacher_ ? teacher_->followed_by(b.tensor) : nullptr;
    if (followed) {
      tensors.push_back(held(b.name, *followed, teacher_->own(), weights_index() + 1));
      continue;
    }
    const auto found = statistics.empty() ? running.end() : std::ranges::find(running, b.tensor);
    const Tensor& values = found == running.end() ? *b.tensor : statistics[size_t(found - running.begin())];
    tensors.push_back(NamedTensor{b.name, in_file_order(values)});
  }
}

// Of `state`, a buffer of own elements that the exchange knows as `which`.
FileTensor Step::held(const std::string& name, const FlatParameters::Parameter& p, const Tensor& state,
                      int64_t which) const {
  const Shape& shape = p.node->shape;
  if (!exchange_) return NamedTensor{name, in_file_order(state.window(shape, contiguous_strides(shape), p.begin))};
  FileTensor out(name, in_file_order(shape), state.dtype());
  const auto rows_of = [shape](Part rows) {
    Shape some = shape;
    if (some.rank() > 0) some[0] = rows.size();
    return some;
  };
  const auto elements = [begin = p.begin, row = shape.size() / std::max<int64_t>(out.rows(), 1)](Part rows) {
    return Part{begin + row * rows.begin, begin + row * rows.end};
  };
  out.get = [=, this](Part rows) {
    const Tensor flat = exchange_->get(which, elements(rows));
    return in_file_order(flat.window(rows_of(rows), contiguous_strides(rows_of(rows))));
  };
  out.put = [=, this](Part rows, const Tensor& x) {
    const Tensor ours(rows_of(rows), x.dtype());
    copy(in_file_order(ours), x);
    exchange_->put(which, elements(rows), ours.window({ours.size()}, {1}));
  };
  return out;
}

std::vector<FileTensor> Step::state() const {
  std::vector<FileTensor> out;
  int64_t which = 0;
  for (const NamedTensor& state : optimizer_->state()) {
    for (const FlatParameters::Parameter& p : parameters_.parameters())
      out.push_back(held(concat(state.name, ".", p.name), p, state.tensor, which));
    ++which;
  }
  if (scale_.dynamic()) out.push_back(NamedTensor{"loss_scale", scale_.state()});
  return out;
}

std::vector<FileTensor> Step::average() const {
  std::vector<FileTensor> out;
  if (!ema_) return out;
  for (const FlatParameters::Parameter& p : parameters_.parameters())
    out.push_back(held(p.name, p, ema_->average(), int64_t(optimizer_->state().size())));
  add_buffers(out, average_statistics_);
  return out;
}

}  // namespace ringtape
