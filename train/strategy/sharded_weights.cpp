#include "train/strategy/sharded_weights.h"

namespace ringtape {

namespace {

Gathering gathering(const PlacementInputs& in) {
  Gathering out{.keeps = in.parallel.keep_weights, .precision = in.precision};
  if (in.parallel.entry().within)
    out.within = in.parallel.shard_within > 0 ? int(in.parallel.shard_within) : in.group.transport().context().island;
  return out;
}

class Serving : public Placement::Uneven {
 public:
  Serving(comm::ShardedBuffers& weights, const ShardedTeacher* teacher, bool uses) : weights_(weights), uses_(uses) {
    if (teacher) teacher_.emplace(*teacher);
    if (uses) weights_.announce(true);
  }
  void end() override {
    if (uses_) weights_.announce(false);
    else weights_.follow();
  }

 private:
  comm::ShardedBuffers& weights_;
  std::optional<ShardedTeacher::Whole> teacher_;
  bool uses_;
};

}  // namespace

ShardedWeights::ShardedWeights(const PlacementInputs& in)
    : ShardedState(in), weights_(parameters_.hold_own(in.group, *shards_, gathering(in))),
      teacher_(nn::teacher_of(model_) ? std::make_unique<ShardedTeacher>(*nn::teacher_of(model_), parameters_, *shards_,
                                                                         *weights_, *group_, gathering(in))
                                      : nullptr) {}

std::unique_ptr<FlatParameters::Converted> ShardedWeights::begin_round() {
  weights_->begin_round();
  return nullptr;
}

std::unique_ptr<Placement::Uneven> ShardedWeights::uneven(int64_t samples, int64_t of_all) {
  if (of_all >= group_->size()) return nullptr;
  return std::make_unique<Serving>(*weights_, teacher_.get(), samples > 0);
}

Placement::Squares ShardedWeights::squares(bool of_gradients, bool of_values) const {
  Squares out = ShardedState::squares(of_gradients, false);
  if (of_values) out.values = value_squares();
  return out;
}

void ShardedWeights::update(const std::function<void()>& f) {
  parameters_.keep_writes();
  f();
  weights_->forget(true);
}

void ShardedWeights::hold(const std::vector<Tensor>& buffers) {
  std::vector<StateExchange::Held> held = this->held(buffers);
  held.push_back({parameters_.own_values(), *shards_});
  if (teacher_) held.push_back({teacher_->own(), teacher_->shards()});
  exchange_ = std::make_unique<StateExchange>(*group_, std::move(held));
}

std::optional<FileTensor> ShardedWeights::divided(const nn::Named& buffer) const {
  const FlatParameters::Parameter* const followed = teacher_ ? teacher_->followed_by(buffer.tensor) : nullptr;
  if (!followed) return std::nullopt;
  return file(buffer.name, *followed, teacher_->own());
}

// Tensors of the model get their values from those who hold them.
void ShardedWeights::on_rank_zero(const std::function<void()>& f) const {
  const auto fetch = [this](const Tensor& own) {
    return [this, which = exchange_->number_of(own)](size_t, Part part) { return exchange_->get(which, part); };
  };
  weights_->fetch_by(fetch(parameters_.own_values()));
  if (teacher_) teacher_->buffer().fetch_by(fetch(teacher_->own()));
  ShardedState::on_rank_zero(f);
  weights_->fetch_by({});
  if (teacher_) teacher_->buffer().fetch_by({});
}

int64_t ShardedWeights::weight_bytes() const {
  const auto bytes = [](const Tensor& x) { return x.size() * int64_t(size_of(x.dtype())); };
  return bytes(parameters_.own_values()) + weights_->kept_within() +
         (teacher_ ? bytes(teacher_->own()) + teacher_->buffer().kept_within() : 0);
}

comm::Reducer::Totals ShardedWeights::traffic() const {
  comm::Reducer::Totals out = reducer_->totals();
  const auto add = [&out](const comm::ShardedBuffers::Totals& totals) {
    out.bytes += totals.bytes / 2;  // a gather is half of an all-reduce
    out.communicating += totals.communicating, out.exposed += totals.exposed;
  };
  add(weights_->totals());
  if (teacher_) add(teacher_->buffer().totals());
  return out;
}

}  // namespace ringtape
