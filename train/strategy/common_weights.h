#pragma once
#include "train/strategy/sharded_state.h"

namespace ringtape {

// Sharded state, of ranks whose weights are one memory, to which each writes its own elements (--share-weights). It
// ends the use of these weights: no tensor of the model is used afterwards.
class CommonWeights : public ShardedState {
 public:
  struct Options {  // of zero1 and zero2
    bool share = false;
  };
  // Whether the ranks have memory in common.
  static bool possible(const comm::ProcessGroup& group);
  explicit CommonWeights(const PlacementInputs& in) : ShardedState(in, true) {}
  ~CommonWeights() override;

  Squares squares(bool of_gradients, bool of_values) const override;
  void update(const std::function<void()>& f) override;
  void write_weights(const std::function<void()>& f) const override;
  void on_rank_zero(const std::function<void()>& f) const override;
  std::vector<Tensor> replicated(std::vector<Tensor>) const override { return {}; }
  int64_t weight_bytes() const override;
  comm::Reducer::Totals traffic() const override { return Placement::traffic(); }
};
void visit(Fields& f, CommonWeights::Options& o);

// Of zero1 and zero2; of the former; of the latter.
std::unique_ptr<Placement> shard_state(const PlacementInputs& in);
RankMemory memory_with_sharded_state(const ModelSize& size, int ranks, const Settings& settings);
RankMemory memory_with_sharded_gradients(const ModelSize& size, int ranks, const Settings& settings);

}  // namespace ringtape
