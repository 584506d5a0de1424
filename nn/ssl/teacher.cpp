#include "nn/ssl/teacher.h"

#include <cmath>
#include <numbers>

#include "autograd/tape.h"

namespace ringtape::nn {
static std::vector<Tensor*> parameters_of(const Encoder& encoder) {
  std::vector<Tensor*> out;
  for (Module* m : {encoder.backbone.get(), encoder.projection.get()})
    for (const Named& p : named_parameters(*m)) out.push_back(p.tensor);
  return out;
}

static std::vector<TeacherWeights::Pair> pairs_of(const Encoder& own, const Encoder& student,
                                                  std::vector<TeacherWeights::Pair> also) {
  const std::vector<Tensor*> to = parameters_of(own), from = parameters_of(student);
  std::vector<TeacherWeights::Pair> out;
  for (size_t i = 0; i < to.size(); ++i) out.push_back({to[i], from[i]});
  out.insert(out.end(), also.begin(), also.end());
  return out;
}

void visit(Fields& f, TeacherOptions& o) {
  f("momentum-encoder", o.momentum,
    {.help = "fraction of the teacher's weights that remains after a step", .unit = "X", .range = kProbability});
  f("momentum-encoder-end", o.final_momentum,
    {.help = "final value of --momentum-encoder, reached along a cosine; -1: constant", .unit = "X", .range = {-1, 1}});
}

Teacher::Teacher(const Encoder& student, Encoder own, const TeacherOptions& options,
                 std::vector<TeacherWeights::Pair> also)
    : own_(std::move(own)), options_(options), weights_(pairs_of(own_, student, std::move(also))) {
  for (const auto& [own_weight, weight] : weights_.pairs())
    *own_weight = weight->detach().copy_to(weight->device());  // not a leaf: it is not trained
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

void Teacher::follow(const Moment& moment) const { weights_.follow(momentum_at(moment)); }

void Teacher::visit(Visitor& v) {
  v.frozen_child("teacher.backbone", *own_.backbone);
  v.frozen_child("teacher.projection", *own_.projection);
  v.teacher(weights_);
}

}  // namespace ringtape::nn
