#include "train/strategy/sharded_weights.h"

namespace ringtape {

namespace {

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

ShardedWeights::ShardedWeights(const PlacementInputs& in, const Gathering& gathering)
    : ShardedState(in), weights_(parameters_.hold_own(in.group, *shards_, gathering)),
      teacher_(nn::teacher_of(model_) ? std::make_unique<ShardedTeacher>(*nn::teacher_of(model_), parameters_, *shards_,
                                                                         *weights_, *group_, gathering)
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

void visit(Fields& f, ShardedWeights::Options& o) {
  f("keep-weights", o.keep,
    {.help = "weights of other ranks stay until the end of a step: less is sent, more memory is needed",
     .may_change = true});
}

void visit(Fields& f, ShardedWeights::WithinOptions& o) {
  visit(f, static_cast<ShardedWeights::Options&>(o));
  f("shard-within", o.within,
    {.help = "this many consecutive ranks together have all weights in a step and send them to each other",
     .unit = "N",
     .range = {1, 1 << 20},
     .automatic = "the ranks of a machine",
     .may_change = true});
}

std::unique_ptr<Placement> shard_weights(const PlacementInputs& in) {
  const bool keeps = in.own<ShardedWeights::Options>().keep;
  return std::make_unique<ShardedWeights>(in, Gathering{.keeps = keeps, .precision = in.precision});
}

RankMemory memory_with_sharded_weights(const ModelSize& size, int ranks, const Settings& settings) {
  const bool keeps = settings.as<ShardedWeights::Options>().keep;
  const int64_t own = size.parameters / ranks;
  return {.weights = own + size.teacher / ranks,
          .gradients = own,
          .state = own,
          .gradient_buckets = comm::Reducer::kMaxOpen,
          .weight_buckets = keeps ? RankMemory::kAllBuckets : comm::ShardedBuffers::kMaxGathered};
}

std::unique_ptr<Placement> shard_weights_within(const PlacementInputs& in) {
  const auto& o = in.own<ShardedWeights::WithinOptions>();
  const int within = o.within > 0 ? int(o.within) : in.group.transport().context().island;
  return std::make_unique<ShardedWeights>(in, Gathering{o.keep, within, in.precision});
}

RankMemory memory_with_weights_within(const ModelSize& size, int ranks, const Settings& settings) {
  const auto& o = settings.as<ShardedWeights::WithinOptions>();
  RankMemory out = memory_with_sharded_weights(size, ranks, ShardedWeights::Options(o));
  if (!o.keep && o.within > 1 && o.within < ranks) out.weights += (size.parameters + size.teacher) / o.within;
  return out;
}

void check_within(const Settings& settings, int64_t ranks) {
  const int64_t within = settings.as<ShardedWeights::WithinOptions>().within;
  RT_CHECK_AS(UsageError, within == 0 || ranks % within == 0, "--shard-within ", within,
              ": it must divide the number of ranks, ", ranks);
}

}  // namespace ringtape
