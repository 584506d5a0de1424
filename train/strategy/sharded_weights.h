#pragma once
#include "train/strategy/sharded_state.h"
#include "train/strategy/sharded_teacher.h"

namespace ringtape {

// Sharded state, of ranks that hold only their own elements of the weights, too, and gather others while they use them
// (fsdp, hsdp). No tensor of the model is used after it.
class ShardedWeights : public ShardedState {
 public:
  explicit ShardedWeights(const PlacementInputs& in);

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

}  // namespace ringtape
