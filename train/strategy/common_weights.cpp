#include "train/strategy/common_weights.h"

#include "core/log.h"

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

void visit(Fields& f, CommonWeights::Options& o) {
  f("share-weights", o.share,
    {.help = "the ranks, which are on one machine, have one copy of the weights in shared memory (--transport shm)",
     .may_change = true});
}

std::unique_ptr<Placement> shard_state(const PlacementInputs& in) {
  if (!in.own<CommonWeights::Options>().share) return std::make_unique<ShardedState>(in);
  if (CommonWeights::possible(in.group)) return std::make_unique<CommonWeights>(in);
  if (in.group.rank() == 0)
    log_warn("--share-weights: ranks over ", in.group.transport().name(),
             " have no memory in common: each has its "
             "own copy; --transport shm, on one machine and its CPU, has");
  return std::make_unique<ShardedState>(in);
}

RankMemory memory_with_sharded_state(const ModelSize& size, int ranks, const Settings& settings) {
  const bool common = settings.as<CommonWeights::Options>().share;
  return {.weights = size.parameters / (common ? ranks : 1) + size.teacher,
          .gradients = size.parameters,
          .state = size.parameters / ranks};
}

RankMemory memory_with_sharded_gradients(const ModelSize& size, int ranks, const Settings& settings) {
  RankMemory out = memory_with_sharded_state(size, ranks, settings);
  out.gradients /= ranks, out.gradient_buckets = comm::Reducer::kMaxOpen;
  return out;
}

}  // namespace ringtape
