#include "train/strategy/placement.h"

#include "kernels/copy.h"
#include "nn/nn.h"
#include "nn/ssl/teacher_weights.h"
#include "train/weights/weights.h"

namespace ringtape {

constexpr int64_t kBufferAligned = 16;  // elements

static int64_t buffer_elements(nn::Module& model) {
  int64_t out = 0;
  for (const nn::Named& b : nn::named_buffers(model)) out += b.tensor->size();
  return (out + kBufferAligned - 1) / kBufferAligned * kBufferAligned;
}

Placement::Placement(const PlacementInputs& in, bool common)
    : model_(in.model), group_(in.group.split(0, in.group.rank())), precision_(in.precision),
      shares_(in.parallel.shares),
      sends_gradients_alone_(in.group.size() == 1 || in.parallel.entry().make == place_all),
      parameters_(
          in.model,
          [&](int64_t size, int64_t parameters, DType dtype, Device device) {
            return gradient_memory(in.parallel.entry().sharded, size, parameters, dtype, device);
          },
          [&](int64_t size, int64_t, DType dtype, Device device) {
            return value_memory(in.parallel.entry().sharded, common, size, dtype, device);
          },
          common ? group_.get() : nullptr),
      reducer_(make_reducer(in)) {}

// Elements in front of the gradients: the reducer's words, and with shares the model's buffers.
int64_t Placement::front(int64_t parameters) const {
  return comm::ControlWords::size(parameters) + (shares_ > 0 ? buffer_elements(model_) : 0);
}

// Memory that other ranks can reach; the gradients follow the reducer's control words, or get memory from the reducer.
Tensor Placement::gradient_memory(Sharded sharded, int64_t size, int64_t parameters, DType dtype, Device device) {
  if (group_->size() == 1 && shares_ == 0) return zeros({size}, dtype, device);
  const bool released = sharded >= Sharded::gradients;
  const int64_t front = this->front(parameters);
  memory_ = group_->allocate({released ? front : front + size}, dtype);
  return released ? Tensor() : memory_.window({size}, {1}, front);
}

// Values that shards exchange; none if ranks hold only their own.
Tensor Placement::value_memory(Sharded sharded, bool common, int64_t size, DType dtype, Device device) const {
  if (group_->size() == 1 || sharded == Sharded::nothing) return zeros({size}, dtype, device);
  if (sharded == Sharded::weights) return {};
  return common ? group_->allocate_common({size}, dtype) : group_->allocate({size}, dtype);
}

std::unique_ptr<comm::Reducer> Placement::make_reducer(const PlacementInputs& in) const {
  if (group_->size() == 1 && shares_ == 0) return nullptr;
  const StrategyEntry& strategy = in.parallel.entry();
  const int64_t front = this->front(int64_t(parameters_.parameters().size()));
  std::vector<comm::GradientSlot> slots;
  comm::Sharding sharding{.release = strategy.shards(Sharded::gradients)};
  for (const FlatParameters::Parameter& p : parameters_.parameters()) {
    slots.push_back({p.name, p.node, front + p.begin, front + p.end});
    if (in.undivided && strategy.shards()) sharding.places.push_back(front + p.begin);
  }
  const auto cells = parameters_.cells().span<int64_t>();
  for (size_t i = 0; i < cells.size() && strategy.shards() && !in.undivided; i += 4)
    if (cells[i] % 16 == 0) sharding.places.push_back(front + cells[i]);  // aligned for vectors
  comm::ReducerOptions options = in.parallel.reducer;
  options.shares = shares_, options.prompt = in.parallel.elastic.on || shares_ > 0;
  return std::make_unique<comm::Reducer>(*group_, memory_, std::move(slots), options, sharding);
}

std::unique_ptr<FlatParameters::Converted> Placement::begin_round() {
  return std::make_unique<FlatParameters::Converted>(parameters_, precision_);
}

void Placement::arm(const Tensor& loss, const comm::Reducer::Step& part) const {
  if (reducer_) reducer_->arm(loss, part);
}

void Placement::finish() const {
  if (reducer_) reducer_->finish();
}

void Placement::give_up() const {
  if (reducer_) reducer_->give_up();
}

Placement::Squares Placement::squares(bool of_gradients, bool) const {
  return {of_gradients ? parameters_.gradient_squares() : Tensor{}, {}};
}

void Placement::update(const std::function<void()>& f) { f(); }

FileTensor Placement::file(const std::string& name, const FlatParameters::Parameter& p, const Tensor& buffer) const {
  const Shape& shape = p.node->shape;
  return NamedTensor{name, in_file_order(buffer.window(shape, contiguous_strides(shape), p.begin))};
}

std::vector<FileTensor> Placement::all_weights() const { return file_tensors(weights_of(model_)); }

void Placement::on_rank_zero(const std::function<void()>& f) const {
  if (group_->rank() == 0) f();
}

std::vector<Tensor> Placement::replicated(std::vector<Tensor> buffers) const {
  buffers.insert(buffers.begin(), parameters_.values());
  return buffers;
}

int64_t Placement::weight_bytes() const {
  return value_bytes() + nn::count_teacher(model_) * int64_t(size_of(parameters_.dtype()));
}

comm::Reducer::Totals Placement::traffic() const { return reducer_ ? reducer_->totals() : comm::Reducer::Totals{}; }

std::vector<Tensor> Placement::summed(const std::vector<Tensor>& buffers) const {
  std::vector<Tensor> out;
  int64_t at = comm::ControlWords::size(int64_t(parameters_.parameters().size()));
  for (const Tensor& b : buffers) {
    out.push_back(memory_.window(b.shape(), contiguous_strides(b.shape()), at));
    at += b.size();
  }
  return out;
}

std::unique_ptr<Placement> make_placement(const PlacementInputs& in) {
  if (in.group.size() == 1) return std::make_unique<Placement>(in);
  return in.parallel.entry().make(in);
}

}  // namespace ringtape
