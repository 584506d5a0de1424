#include "train/strategy/sharded_state.h"

#include <algorithm>

#include "kernels/copy.h"
#include "train/weights/weights.h"

namespace ringtape {

static std::unique_ptr<comm::Shards> shards_of(const comm::Reducer& reducer, comm::ProcessGroup& group,
                                               size_t parameters) {
  std::vector<comm::Stretch> stretches = reducer.stretches();
  for (comm::Stretch& s : stretches) s.begin -= comm::ControlWords::size(int64_t(parameters));
  return std::make_unique<comm::Shards>(group, std::move(stretches));
}

ShardedState::ShardedState(const PlacementInputs& in, bool common)
    : Placement(in, common), shards_(shards_of(*reducer_, *group_, parameters_.parameters().size())) {
  parameters_.shard(*shards_, reducer_->kept(), reducer_->reached());
}

Tensor ShardedState::over_ranks(const Tensor& squares) const {
  group_->all_reduce(squares).wait();
  return squares;
}

Placement::Squares ShardedState::squares(bool of_gradients, bool) const {
  return {of_gradients ? over_ranks(parameters_.gradient_squares()) : Tensor{}, {}};
}

void ShardedState::update(const std::function<void()>& f) {
  f();
  shards_->start_gather(parameters_.values());
}

std::vector<StateExchange::Held> ShardedState::held(const std::vector<Tensor>& buffers) const {
  std::vector<StateExchange::Held> out;
  for (const Tensor& b : buffers) out.push_back({b, *shards_});
  return out;
}

void ShardedState::hold(const std::vector<Tensor>& buffers) {
  exchange_ = std::make_unique<StateExchange>(*group_, held(buffers));
}

FileTensor ShardedState::file(const std::string& name, const FlatParameters::Parameter& p, const Tensor& buffer) const {
  const Shape& shape = p.node->shape;
  FileTensor out(name, in_file_order(shape), buffer.dtype());
  const auto rows_of = [shape](Part rows) {
    Shape some = shape;
    if (some.rank() > 0) some[0] = rows.size();
    return some;
  };
  const auto elements = [begin = p.begin, row = shape.size() / std::max<int64_t>(out.rows(), 1)](Part rows) {
    return Part{begin + row * rows.begin, begin + row * rows.end};
  };
  const int64_t which = exchange_->number_of(buffer);
  out.get = [=, this](Part rows) {
    const Tensor flat = exchange_->get(which, elements(rows));
    return in_file_order(flat.window(rows_of(rows), contiguous_strides(rows_of(rows))));
  };
  out.put = [=, this](Part rows, const Tensor& x) {
    const Tensor ours(rows_of(rows), x.dtype());
    copy(in_file_order(ours), x);
    exchange_->put(which, elements(rows), ours.window({ours.size()}, {1}));
  };
  return out;
}

void ShardedState::on_rank_zero(const std::function<void()>& f) const {
  if (group_->rank() != 0) return exchange_->serve();
  f();
  exchange_->finish();
}

std::vector<Tensor> ShardedState::replicated(std::vector<Tensor>) const { return {parameters_.values()}; }

comm::Reducer::Totals ShardedState::traffic() const {
  comm::Reducer::Totals out = reducer_->totals();
  out.bytes += out.steps * value_bytes() / 2;  // a gather is half of an all-reduce
  out.communicating += shards_->totals().communicating, out.exposed += shards_->totals().exposed;
  return out;
}

}  // namespace ringtape
