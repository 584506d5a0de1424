#pragma once
#include "train/strategy/sharded_state.h"
#include "train/strategy/sharded_teacher.h"

namespace ringtape {

// Sharded state, of ranks that hold only their own elements of the weights, too, and gather others while they use them
// (fsdp, hsdp). No tensor of the model is used after it.
class ShardedWeights : public ShardedState {
 public:
  struct Options {      // of fsdp
    bool keep = false;  // weights, from the forward to the backward pass
  };
  struct WithinOptions : Options {  // of hsdp: some consecutive ranks together have all weights
    int64_t within = 0;             // so many; 0: those of a machine
  };
  ShardedWeights(const PlacementInputs& in, const Gathering& gathering);

  std::unique_ptr<FlatParameters::Converted> begin_round() override;
  std::unique_ptr<Uneven> uneven(int64_t samples, int64_t of_all) override;
  Squares squares(bool of_gradients, bool of_values) const override;
  void update(const std::function<void()>& f) override;
  Tensor value_squares() const override { return over_ranks(parameters_.value_squares()); }
  void hold(const std::vector<Tensor>& buffers) override;
  std::optional<FileTensor> divided(const nn::Named& buffer) const override;
  void on_rank_zero(const std::function<void()>& f) const override;
  std::vector<Tensor> replicated(std::vector<Tensor>) const override { return {}; }
  int64_t weight_bytes() const override;
  comm::Reducer::Totals traffic() const override;
  comm::ShardedBuffers* gathered_weights() const override { return weights_.get(); }
  const ShardedTeacher* sharded_teacher() const override { return teacher_.get(); }

 private:
  const std::unique_ptr<comm::ShardedBuffers> weights_;
  const std::unique_ptr<ShardedTeacher> teacher_;  // null: the model has none
};
void visit(Fields& f, ShardedWeights::Options& o);
void visit(Fields& f, ShardedWeights::WithinOptions& o);

// Of fsdp.
std::unique_ptr<Placement> shard_weights(const PlacementInputs& in);
RankMemory memory_with_sharded_weights(const ModelSize& size, int ranks, const Settings& settings);
// Of hsdp.
std::unique_ptr<Placement> shard_weights_within(const PlacementInputs& in);
RankMemory memory_with_weights_within(const ModelSize& size, int ranks, const Settings& settings);
void check_within(const Settings& settings, int64_t ranks);

}  // namespace ringtape
