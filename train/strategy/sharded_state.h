#pragma once
#include "train/strategy/placement.h"
#include "train/strategy/state_exchange.h"

namespace ringtape {

// Each rank updates its own elements, with gradients and optimizer's state of these only, and sends their values to the
// others, who have all (zero1, zero2).
class ShardedState : public Placement {
 public:
  explicit ShardedState(const PlacementInputs& in, bool common = false);

  const comm::Shards* shards() const override { return shards_.get(); }
  std::unique_ptr<FlatParameters::Converted> begin_round() override { return nullptr; }  // others' may not be there yet
  Squares squares(bool of_gradients, bool of_values) const override;
  void update(const std::function<void()>& f) override;
  void hold(const std::vector<Tensor>& buffers) override;
  FileTensor file(const std::string& name, const FlatParameters::Parameter& p, const Tensor& buffer) const override;
  void on_rank_zero(const std::function<void()>& f) const override;
  std::vector<Tensor> replicated(std::vector<Tensor> buffers) const override;
  comm::Reducer::Totals traffic() const override;

 protected:
  Tensor over_ranks(const Tensor& squares) const;  // those of other ranks' elements are 0
  std::vector<StateExchange::Held> held(const std::vector<Tensor>& buffers) const;

  const std::unique_ptr<comm::Shards> shards_;
  std::unique_ptr<StateExchange> exchange_;
};

}  // namespace ringtape
