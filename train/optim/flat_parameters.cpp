#include "train/optim/flat_parameters.h"

#include "kernels/copy.h"
#include "kernels/gradient.h"
#include "train/optim/cells.h"

namespace ringtape {

constexpr int64_t kColumns = 4;  // of the table of cells

std::vector<Part> flat_places(const std::vector<nn::Named>& parameters) {
  std::vector<Part> out;
  for (const nn::Named& p : parameters) {
    const int64_t begin = out.empty() ? 0 : out.back().end;
    out.push_back({begin, begin + (p.tensor->size() + 15) / 16 * 16});
  }
  return out;
}

FlatParameters::FlatParameters(nn::Module& module, const Memory& gradients, const Memory& values,
                               comm::ProcessGroup* common)
    : common_(common) {
  const std::vector<nn::Named> named = nn::named_parameters(module);
  RT_CHECK_AS(UsageError, !named.empty(), "a model without parameters cannot be trained");
  const Tensor first = *named[0].tensor;
  dtype_ = first.dtype();
  for (const nn::Named& p : named)
    RT_CHECK_AS(DTypeError, p.tensor->dtype() == first.dtype() && p.tensor->device() == first.device(), "parameter ",
                p.name, " is ", p.tensor->dtype(), " on ", p.tensor->device(), ", the first one ", first.dtype(),
                " on ", first.device());
  const std::vector<Part> places = flat_places(named);
  size_ = places.back().end;
  const auto memory = [&](const Memory& given) {
    return given ? given(size_, int64_t(named.size()), first.dtype(), first.device())
                 : zeros({size_}, first.dtype(), first.device());
  };
  values_ = memory(values), gradients_ = memory(gradients);
  for (size_t i = 0; i < named.size(); ++i) {
    const nn::Named& p = named[i];
    const int64_t begin = places[i].begin;
    Tensor& x = *p.tensor;
    for (const nn::Named& other : named)
      RT_CHECK_AS(UsageError, &other == &p || other.tensor->node() != x.node(), "parameters ", p.name, " and ",
                  other.name, " are one tensor; tied parameters cannot be flattened");
    const Shape shape = x.shape(), strides = contiguous_strides(shape);
    const Tensor view = values_.defined() ? values_.window(shape, strides, begin) : x.detach();
    if (values_.defined() && (!common || common->rank() == 0)) copy(view, x);
    x = leaf(view);
    if (gradients_.defined()) x.node()->grad_slot = gradients_.window(shape, strides, begin);
    parameters_.push_back({p.name, x.node(), begin, places[i].end, &x});
  }
  meet();
  own_ = {{0, size_}};
  std::vector<int64_t> table;
  for (const Parameter& p : parameters_) {
    const std::vector<Part> cells = cells_of(p.node->shape);
    for (size_t i = 0; i < cells.size(); ++i)
      table.insert(table.end(), {p.begin + cells[i].begin, p.begin + cells[i].end, int64_t(i), int64_t(cells.size())});
  }
  cells_ = from_host(table, {int64_t(table.size()) / kColumns, kColumns});
  cells_on_device_ = first.device() == Device{} ? cells_ : cells_.copy_to(first.device());
}

void FlatParameters::meet() const {
  if (!common_) return;
  common_->barrier().wait();
  values_.storage()->written_by("another rank");
}

std::vector<Part> FlatParameters::with_gradient() const {
  std::vector<Part> runs;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& p = parameters_[i];
    if (!has_gradient(i)) continue;
    if (!runs.empty() && runs.back().end == p.begin) runs.back().end = p.end;
    else runs.push_back({p.begin, p.end});
  }
  return runs;
}

void FlatParameters::shard(const comm::Shards& shards, const Tensor& gradients, const std::vector<char>& reached) {
  own_ = shards.own(), reached_ = &reached;
  if (gradients.defined()) gradients_ = gradients;
}

std::unique_ptr<comm::ShardedBuffers> FlatParameters::hold_own(comm::ProcessGroup& group, const comm::Shards& shards,
                                                               const Gathering& gathering) {
  own_values_ = zeros({own_size()}, dtype_, device());
  auto buffers = std::make_unique<comm::ShardedBuffers>(group, gathering.keeps, gathering.within);
  const DType precision = gathering.precision;
  const bool converts = dtype_ == DType::f32 && precision != DType::f32;
  std::vector<Part> small;  // biases, scales and shifts
  for (const Parameter& p : parameters_)
    if (converts && p.node->shape.rank() < 2) small.push_back({p.begin, p.end});
  const size_t values = buffers->add(shards.stretches(), own_values_, dtype_, small);
  const size_t half = converts ? buffers->add(shards.stretches(), own_values_, precision) : values;
  for (const Parameter& p : parameters_) {
    const Tensor flat = contiguous(p.tensor->detach());
    group.broadcast(flat, 0).wait();  // ranks may have begun with others
    shards.each_own(own_values_, flat, p.begin, [](const Tensor& own, const Tensor& x) { copy(own, x); });
    *p.tensor = buffers->window(values, p.node->shape, p.begin);
    p.tensor->set_node(p.node);
    if (converts && p.node->shape.rank() >= 2)
      p.node->converted = [precision, converted = buffers->window(half, p.node->shape, p.begin)](DType dtype) {
        return dtype == precision ? converted : Tensor();
      };
  }
  buffers_ = buffers.get();
  return buffers;
}

FlatParameters::Converted::Converted(const FlatParameters& parameters, DType dtype) {
  if (!parameters.values_.defined() || parameters.dtype_ != DType::f32 || dtype == DType::f32) return;
  parameters_ = &parameters;
  const Tensor all({parameters.size_}, dtype, parameters.device());
  const uint32_t version = parameters.values_.storage()->version();
  copy(all, parameters.values_);
  for (const Parameter& p : parameters.parameters_)
    if (const Shape& shape = p.node->shape; shape.rank() >= 2)
      p.node->converted = [dtype, own = all.window(shape, contiguous_strides(shape), p.begin),
                           values = parameters.values_.storage(), version](DType wanted) {
        return wanted == dtype && values->version() == version ? own : Tensor();
      };
}

FlatParameters::Converted::~Converted() {
  if (parameters_)
    for (const Parameter& p : parameters_->parameters_) p.node->converted = {};
}

void FlatParameters::keep_writes() const {
  if (buffers_) buffers_->keep_writes();
}

void FlatParameters::written(const char* by) const {
  if (buffers_) buffers_->forget();
  else values_.storage()->written_by(by);
}

Tensor FlatParameters::values(Part own) const {
  return values_.defined() ? values_.window({own.size()}, {1}, own.begin) : own_part(own_values_, own);
}

Tensor FlatParameters::gradients(Part own) const {
  return gradients_.size() == size() ? gradients_.window({own.size()}, {1}, own.begin) : own_part(gradients_, own);
}

bool FlatParameters::has_gradient(size_t parameter) const {
  return reached_ ? (*reached_)[parameter] : parameters_[parameter].node->grad.defined();
}

std::vector<Part> FlatParameters::own_with_gradient() const {
  std::vector<Part> out;
  for (const Part& own : own_)
    for (const Part& run : with_gradient()) {
      const Part both{std::max(own.begin, run.begin), std::min(own.end, run.end)};
      if (both.begin < both.end) out.push_back(both);
    }
  return out;
}

int64_t FlatParameters::own_size() const {
  int64_t size = 0;
  for (const Part& own : own_) size += own.size();
  return size;
}

Tensor FlatParameters::own_part(const Tensor& buffer, Part part) const { return comm::own_part(own_, buffer, part); }

Part FlatParameters::cells_in(Part run) const {
  const auto first_at = [this](int64_t element) {
    int64_t low = 0, high = cells_.dim(0);
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (cells_.data<int64_t>()[kColumns * middle] < element) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  return {first_at(run.begin), first_at(run.end)};
}

void FlatParameters::add_squares(const Tensor& squares, const Tensor& elements, Part run) const {
  const Part c = cells_in(run);
  if (c.size() == 0) return;  // parameters without elements
  cell_squares(squares.window({c.size()}, {1}, c.begin), elements,
               cells_on_device_.window({c.size(), kColumns}, {kColumns, 1}, kColumns * c.begin), run.begin);
}

Tensor FlatParameters::value_squares() const {
  const Tensor squares = zeros({cells_.dim(0)}, DType::f64, device());
  if (values_.defined()) add_squares(squares, values_, {0, size_});
  else
    for (const Part& own : own_) add_squares(squares, own_part(own_values_, own), own);
  return squares;
}

Tensor FlatParameters::gradient_squares() const {
  const Tensor squares = zeros({cells_.dim(0)}, DType::f64, device());
  for (const Part& run : own_with_gradient()) add_squares(squares, gradients(run), run);
  return squares;
}

void FlatParameters::zero_grad() {
  for (const Parameter& p : parameters_) p.node->grad = {};
}

}  // namespace ringtape
