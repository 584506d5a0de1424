#include "nn/ssl/teacher_weights.h"

#include <algorithm>

#include "autograd/create.h"
#include "autograd/inplace.h"

namespace ringtape::nn {
namespace {

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

struct FindTeacher : Visitor {
  TeacherWeights* found = nullptr;
  void on_teacher(TeacherWeights& weights) override {
    if (!found) found = &weights;
  }
};

}  // namespace

int64_t TeacherWeights::size() const {
  int64_t size = 0;
  for (const Pair& p : pairs_) size += p.own->size();
  return size;
}

void TeacherWeights::follow(double momentum) const {
  if (instead_) return instead_(momentum);
  std::vector<Tensor*> own;
  Tensors students, owns;
  for (const Pair& p : pairs_) own.push_back(p.own), students.push_back(p.student->detach());
  lay_out(own, students);
  for (const Tensor* t : own) owns.push_back(t->detach());
  average_(owns, students, momentum);
}

TeacherWeights* teacher_of(Module& module) {
  FindTeacher visitor;
  module.visit(visitor);
  return visitor.found;
}

int64_t count_teacher(Module& module) {
  const TeacherWeights* const weights = teacher_of(module);
  return weights ? weights->size() : 0;
}

}  // namespace ringtape::nn
