#include "nn/ssl/teacher.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "autograd/inplace.h"
#include "autograd/tape.h"

namespace ringtape::nn {
namespace {

std::vector<Tensor*> parameters_of(const Encoder& encoder) {
  std::vector<Tensor*> out;
  for (Module* m : {encoder.backbone.get(), encoder.projection.get()})
    for (const Named& p : named_parameters(*m)) out.push_back(p.tensor);
  return out;
}

Tensors detached(const std::vector<Tensor*>& tensors) {
  Tensors out;
  for (const Tensor* t : tensors) out.push_back(t->detach());
  return out;
}

// Moves `own` into one buffer with the layout of `like`, so that one pass can process both. No-op if `like` is not in
// one buffer.
void lay_out(const std::vector<Tensor*>& own, const Tensors& like) {
  const Tensor& first = like[0];
  const auto offset = [&](const Tensor& x, const Tensor& from) {
    return (static_cast<const char*>(View(x).data) - static_cast<const char*>(View(from).data)) /
           int64_t(size_of(from.dtype()));
  };
  if (!std::ranges::all_of(like, [&](const Tensor& x) { return x.storage() == first.storage(); })) return;
  bool is_so = true, can_be = true;
  int64_t end = 0;
  for (size_t i = 0; i < like.size(); ++i) {
    const int64_t at = offset(like[i], first);
    can_be = can_be && at >= end;
    is_so = is_so && own[i]->storage() == own[0]->storage() && offset(*own[i], *own[0]) == at;
    end = at + like[i].size();
  }
  if (is_so || !can_be) return;
  const Tensor flat = zeros({end}, first.dtype(), first.device());
  for (size_t i = 0; i < like.size(); ++i) {
    const Tensor place = flat.window(own[i]->shape(), own[i]->strides(), offset(like[i], first));
    *own[i] = copy_(place, own[i]->detach());
  }
}

}  // namespace

void visit(Fields& f, TeacherOptions& o) {
  f("momentum-encoder", o.momentum,
    {.help = "fraction of the teacher's weights that remains after a step", .unit = "X", .range = kProbability});
  f("momentum-encoder-end", o.final_momentum,
    {.help = "final value of --momentum-encoder, reached along a cosine; -1: constant", .unit = "X", .range = {-1, 1}});
}

Teacher::Teacher(const Encoder& student, Encoder own, const TeacherOptions& options)
    : own_(std::move(own)), options_(options) {
  const std::vector<Tensor*> from = parameters_of(student), to = parameters_of(own_);
  for (size_t i = 0; i < to.size(); ++i)
    *to[i] = from[i]->detach().copy_to(from[i]->device());  // not leaves: they are not trained
}

Tensor Teacher::operator()(const Tensor& x) const {
  const NoGrad no_grad;
  return own_(x);
}

double Teacher::momentum_at(const Moment& moment) const {
  const double from = options_.momentum, to = options_.final_momentum;
  if (to < 0) return from;
  const double t = moment.steps > 1 ? double(moment.step) / double(moment.steps - 1) : 1;
  return to - (to - from) * (std::cos(std::numbers::pi * t) + 1) / 2;
}

void Teacher::follow(const Encoder& student, const Moment& moment) {
  const std::vector<Tensor*> own = parameters_of(own_);
  const Tensors from = detached(parameters_of(student));
  lay_out(own, from);
  average_(detached(own), from, momentum_at(moment));
}

void Teacher::visit(Visitor& v) {
  v.frozen_child("teacher.backbone", *own_.backbone);
  v.frozen_child("teacher.projection", *own_.projection);
}

}  // namespace ringtape::nn
