#include "autograd/checkpoint.h"

#include <utility>

#include "autograd/autocast.h"
#include "autograd/create.h"
#include "autograd/saved.h"
#include "autograd/tape.h"

namespace ringtape {

// The values that the operations of one section saved, in order. Empty until the first one is needed.
class SavedValues : public std::enable_shared_from_this<SavedValues> {
 public:
  SavedValues(Section section, Tensors inputs, const RandomState& random)
      : section_(std::move(section)), inputs_(std::move(inputs)), random_(random) {}

  bool computing() const { return computing_; }

  // First call of the section: keeps only the version; returns the index of the value.
  size_t note(const Tensor& x) {
    versions_.push_back(version_of(x));
    return versions_.size() - 1;
  }

  // Second call. The version shows whether a parameter or input was written to in between.
  void put(const Tensor& x) {
    const size_t index = values_.size();
    RT_CHECK_AS(AutogradError, index >= versions_.size() || versions_[index] == version_of(x),
                "checkpoint: ", x.storage()->last_writer(), " has written to a tensor of shape ", x.shape(),
                " between the section's call and its repetition; write to a copy instead");
    values_.push_back(x.detach());
  }

  const Tensor& get(size_t index) {
    if (values_.empty()) compute();
    RT_CHECK_AS(AutogradError, index < values_.size(), "checkpoint: the section saved ", versions_.size(),
                " tensors at first and ", values_.size(), " when called again; it must do the same each time");
    return values_[index];
  }
  void drop() { values_.clear(); }

 private:
  static uint32_t version_of(const Tensor& x) { return x.defined() ? x.storage()->version() : 0; }
  void compute();

  Section section_;
  Tensors inputs_;
  RandomState random_;
  DType autocast_ = autocast_dtype();
  Tensors values_;
  std::vector<uint32_t> versions_;
  bool computing_ = false;
};

namespace {

thread_local std::shared_ptr<SavedValues> current;  // those of the running section

class Current {
 public:
  explicit Current(std::shared_ptr<SavedValues> values) : before_(std::exchange(current, std::move(values))) {}
  ~Current() { current = std::move(before_); }

 private:
  std::shared_ptr<SavedValues> before_;
};

class RestoreRandom {
 public:
  explicit RestoreRandom(const RandomState& use) : after_(default_generator().state()) {
    default_generator().set_state(use);
  }
  ~RestoreRandom() { default_generator().set_state(after_); }

 private:
  RandomState after_;
};

// Marks the start of a section. Backward reaches it after it has left the section.
Tensor section_input(const Tensor& x, const std::shared_ptr<SavedValues>& values) {
  return record("checkpoint", {x}, x.detach(), [values](const Tensor& dy) -> Tensors {
    values->drop();
    return {dy};
  });
}

}  // namespace

void SavedValues::compute() {
  struct Computing {
    explicit Computing(SavedValues& values) : values(values) { values.computing_ = true; }
    ~Computing() {
      values.computing_ = false;
      if (!done) values.drop();
    }
    SavedValues& values;
    bool done = false;
  } computing(*this);
  const RestoreRandom random(random_);
  const Autocast cast(autocast_);
  const EnableGrad recorded;
  const Current scope(shared_from_this());
  section_(inputs_);
  computing.done = true;
  // If no input needs a gradient, backward does not reach the start of the section.
  at_end_of_backward([values = weak_from_this()] {
    if (const auto alive = values.lock()) alive->drop();
  });
}

SavedTensor::SavedTensor(const Tensor& x, Of of) {
  if (current && current->computing()) {
    current->put(x);
  } else if (current) {
    values_ = current;
    index_ = current->note(x);
    return;
  } else if (of == Of::recomputed && x.node() && x.node()->again) {
    node_ = x.node();
    return;
  }
  x_ = x.detach();
  version_ = x.defined() ? x.storage()->version() : 0;
}

const Tensor& SavedTensor::operator*() const {
  if (values_) return values_->get(index_);
  if (node_) {
    if (!x_.defined()) x_ = node_->again();
  } else if (x_.defined()) {
    RT_CHECK_AS(AutogradError, x_.storage()->version() == version_, current_op(), " needs a tensor of shape ",
                x_.shape(), " as it was when it was saved, but ", x_.storage()->last_writer(),
                " has written to it since (version ", x_.storage()->version(), ", saved at ", version_,
                "); write to a copy instead");
  }
  return x_;
}

bool recomputing() { return current && current->computing(); }

Tensor checkpoint(Section section, const Tensors& inputs) {
  if (current || !grad_enabled()) return section(inputs);
  // The second call gets leaves instead of the inputs, so that it records and saves the same as the first.
  Tensors again;
  for (const Tensor& x : inputs) again.push_back(x.node() ? leaf(x) : x);
  auto values = std::make_shared<SavedValues>(section, again, default_generator().state());
  Tensors marked;
  for (const Tensor& x : inputs) marked.push_back(section_input(x, values));
  const Current scope(values);
  return section(marked);
}

}  // namespace ringtape
