#include "train/strategy/sharded_teacher.h"

#include <algorithm>

#include "autograd/ops.h"
#include "kernels/copy.h"
#include "kernels/optimizer.h"

namespace ringtape {

// What the stretches have of runs of elements; both ascend.
static std::vector<comm::Stretch> stretches_within(const std::vector<comm::Stretch>& all,
                                                   const std::vector<Part>& runs) {
  std::vector<comm::Stretch> out;
  for (const comm::Stretch& s : all)
    for (const Part& run : runs)
      if (std::max(s.begin, run.begin) < std::min(s.end(), run.end)) out.push_back(s.within(run));
  return out;
}

ShardedTeacher::ShardedTeacher(nn::TeacherWeights& weights, const FlatParameters& student, const comm::Shards& shards,
                               comm::ShardedBuffers& students, comm::ProcessGroup& group, const Gathering& gathering)
    : weights_(weights), student_(student), students_(students) {
  std::vector<Part> runs;
  for (const FlatParameters::Parameter& p : student.parameters())
    for (const auto& [own, followed] : weights.pairs()) {
      if (followed != p.tensor) continue;
      held_.push_back({own, &p});
      if (!runs.empty() && runs.back().end == p.begin) runs.back().end = p.end;
      else runs.push_back({p.begin, p.end});
    }
  RT_CHECK(held_.size() == weights.pairs().size(), "a teacher follows what is not trained");
  shards_ = std::make_unique<comm::Shards>(group, stretches_within(shards.stretches(), runs));
  own_ = zeros({shards_->own_size()}, student.dtype(), student.device());
  buffer_ = std::make_unique<comm::ShardedBuffers>(group, gathering.keeps, gathering.within);
  buffer_->add(shards_->stretches(), own_, own_.dtype());
  for (const Weight& w : held_) {
    const Tensor flat = contiguous(w.tensor->detach());
    group.broadcast(flat, 0).wait();  // ranks may have begun with others
    shards_->each_own(own_, flat, w.followed->begin, [](const Tensor& own, const Tensor& x) { copy(own, x); });
  }
  hand_out();
  weights.set_follow([this](double momentum) { follow(momentum); });
}

ShardedTeacher::~ShardedTeacher() { weights_.set_follow({}); }

void ShardedTeacher::hand_out() const {
  for (const Weight& w : held_) *w.tensor = buffer_->window(0, w.followed->node->shape, w.followed->begin);
}

void ShardedTeacher::follow(double momentum) const {
  students_.keep_writes();
  buffer_->keep_writes();
  for (const Part& part : shards_->own())
    ema_step(comm::own_part(shards_->own(), own_, part), student_.values(part), momentum);
  buffer_->forget(true);
}

const FlatParameters::Parameter* ShardedTeacher::followed_by(const Tensor* tensor) const {
  const auto at = std::ranges::find(held_, tensor, &Weight::tensor);
  return at == held_.end() ? nullptr : at->followed;
}

ShardedTeacher::Whole::Whole(const ShardedTeacher& teacher) : teacher_(teacher) {
  const Tensor all({teacher.held_.back().followed->end}, teacher.own_.dtype(), teacher.own_.device());
  teacher.buffer_->keep_writes();
  teacher.shards_->each_own(teacher.own_, all, 0, [](const Tensor& own, const Tensor& x) { copy(x, own); });
  teacher.shards_->gather(all);
  for (const Weight& w : teacher.held_) {
    const Shape& shape = w.followed->node->shape;
    *w.tensor = all.window(shape, contiguous_strides(shape), w.followed->begin);
  }
}

}  // namespace ringtape
