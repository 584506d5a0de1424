#pragma once
#include "train/strategy/sharded_state.h"

namespace ringtape {

// Sharded state, of ranks whose weights are one memory, to which each writes its own elements (--share-weights). It
// ends the use of these weights: no tensor of the model is used afterwards.
class CommonWeights : public ShardedState {
 public:
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

}  // namespace ringtape
