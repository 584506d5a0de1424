#include "train/strategy/common_weights.h"

namespace ringtape {

bool CommonWeights::possible(const comm::ProcessGroup& group) {
  const comm::Transport& t = group.transport();
  return t.size() > 1 && t.abilities().shares_memory && t.device().type == DeviceType::cpu;
}

CommonWeights::~CommonWeights() {
  const std::shared_ptr<Storage>& values = parameters_.values().storage();
  values->provide(nullptr);
  values->set_arriving([](size_t, size_t) -> bool {
    throw Error("weights that ranks had in common are used after the end of the training");
  });
}

Placement::Squares CommonWeights::squares(bool of_gradients, bool of_values) const {
  Squares out = ShardedState::squares(of_gradients, false);
  if (of_values) out.values = parameters_.value_squares();  // before others change them
  return out;
}

void CommonWeights::update(const std::function<void()>& f) {
  parameters_.meet();
  f();
  parameters_.meet();
}

void CommonWeights::write_weights(const std::function<void()>& f) const {
  parameters_.meet();
  if (group_->rank() == 0) f();
  parameters_.meet();
}

void CommonWeights::on_rank_zero(const std::function<void()>& f) const {
  ShardedState::on_rank_zero(f);
  parameters_.meet();
}

int64_t CommonWeights::weight_bytes() const {
  return Placement::weight_bytes() - value_bytes() + value_bytes() / group_->size();
}

}  // namespace ringtape
