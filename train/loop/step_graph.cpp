#include "train/loop/step_graph.h"

#include <cstdint>

#include "autograd/create.h"
#include "core/log.h"
#include "core/runtime.h"
#include "kernels/copy.h"
#include "train/loop/step_parts.h"

namespace ringtape {

struct StepGraph::Recorded {
  Form form;
  Tensors images;  // what the graph reads
  Labels labels{Tensor()};
  std::vector<std::shared_ptr<Storage>> places;  // of the model's tensors
  std::vector<char> reached;                     // parameters
  std::vector<int64_t> missed;
  RandomState random;  // where the next launch begins
  uint64_t drawn = 0;  // blocks of random numbers of a launch
  Step::Result result;
  std::shared_ptr<RecordedWork> work;  // first to go: it waits for what it has launched
};

// What a step changes on the host, besides the model's buffers.
struct StepGraph::HostState {
  RandomState random;
  int64_t steps;
  std::vector<int64_t> own_steps;
};

namespace {

struct AllModules : nn::Visitor {
  std::vector<nn::Module*> found;
  void on_module(const std::string&, nn::Module& module) override { found.push_back(&module); }
};

std::vector<Tensor*> pointers(const std::vector<nn::Named>& named) {
  std::vector<Tensor*> out;
  for (const nn::Named& n : named) out.push_back(n.tensor);
  return out;
}

std::vector<std::shared_ptr<Storage>> storages(const std::vector<Tensor*>& tensors) {
  std::vector<std::shared_ptr<Storage>> out;
  for (const Tensor* t : tensors) out.push_back(t->storage());
  return out;
}

Tensors values_of(const std::vector<Tensor*>& tensors) {
  Tensors out;
  for (const Tensor* t : tensors) out.push_back(*t);
  return out;
}

}  // namespace

StepGraph::StepGraph(nn::Module& model, Optimizer& optimizer, const Placement& placement)
    : optimizer_(optimizer), placement_(placement), device_(placement.parameters().device()),
      buffers_(pointers(nn::named_buffers(model))), tensors_(pointers(nn::all_parameters(model))) {
  tensors_.insert(tensors_.end(), buffers_.begin(), buffers_.end());
  AllModules visitor;
  visitor.child("", model);
  modules_ = std::move(visitor.found);
}

StepGraph::~StepGraph() = default;

void StepGraph::forget() {
  recorded_.reset();
  last_ = {}, in_a_row_ = 0;
}

StepGraph::Form StepGraph::form_of(const Tensors& images, const Labels& labels, const GlobalBatch& global) const {
  Form out = {labels.size(), labels.scale.defined(), global.samples};
  for (const double asked : global.riders) out.push_back(int64_t(asked));
  if (labels.size() == 0 || labels.other.defined()) return {};  // mixed: their shares differ from step to step
  constexpr uintptr_t kAligned = 256;  // as the graph's images: products of others may have other bits
  for (const Tensor& x : images) {
    if (x.device() != device_ || reinterpret_cast<uintptr_t>(View(x).data) % kAligned != 0) return {};
    out.push_back(int64_t(x.dtype()));
    out.insert(out.end(), x.shape().begin(), x.shape().end());
  }
  for (const nn::Module* module : modules_) {
    const int64_t form = module->form();
    if (form < 0) return {};
    out.push_back(form);
  }
  return out;
}

Step::Result StepGraph::run(const Tensors& images, const Labels& labels, double lr, const GlobalBatch& global,
                            const Work& work) {
  constexpr int kFirst = 2;  // steps in which all is made that is made on first use
  Form form = form_of(images, labels, global);
  in_a_row_ = form == last_ ? in_a_row_ + 1 : 1;
  last_ = std::move(form);
  if (fits(last_)) return repeat(images, labels, lr);
  if (!last_.empty() && last_ != refused_ && in_a_row_ > kFirst) return record(images, labels, work);
  return recorded_ ? in_place(images, labels, work) : work(images, labels);
}

bool StepGraph::fits(const Form& form) const {
  if (!recorded_ || form != recorded_->form || storages(tensors_) != recorded_->places) return false;
  const std::vector<int64_t> missed = optimizer_.missed_steps();
  for (size_t i = 0; i < missed.size(); ++i)
    if (recorded_->reached[i] && missed[i] != recorded_->missed[i]) return false;
  return true;
}

// Buffers that the step replaces get their new values where they were before: the graph uses them there.
Step::Result StepGraph::in_place(const Tensors& images, const Labels& labels, const Work& work) const {
  const Tensors before = values_of(buffers_);
  Step::Result out = work(images, labels);
  for (size_t i = 0; i < before.size(); ++i) {
    if (buffers_[i]->storage() == before[i].storage()) continue;
    copy(before[i], buffers_[i]->detach());
    *buffers_[i] = before[i];
  }
  return out;
}

StepGraph::HostState StepGraph::host_state() const {
  return {default_generator().state(), optimizer_.steps(), optimizer_.own_steps()};
}

void StepGraph::put_back(const HostState& before) const {
  default_generator().set_state(before.random);
  optimizer_.set_steps(before.steps, before.own_steps);
}

// Other ranks may fail before the weights are updated: then it is as if the step had not begun.
Step::Result StepGraph::launch(const HostState& before) const {
  try {
    recorded_->work->launch();
  } catch (...) {
    put_back(before);
    throw;
  }
  return recorded_->result;
}

Step::Result StepGraph::record(const Tensors& images, const Labels& labels, const Work& work) {
  const Runtime& gpu = runtime(device_);
  recorded_.reset();
  gpu.release_cached(device_.index);  // the graph's memory is apart
  auto next = std::make_unique<Recorded>();
  next->form = last_, next->places = storages(tensors_);
  next->images = clones(images), next->labels.y = clones({labels.y})[0];
  if (labels.scale.defined()) next->labels.scale = clones({labels.scale})[0];
  Generator& generator = default_generator();
  const HostState before = host_state();
  const RandomState random = next->random = before.random;
  const Tensors buffers = values_of(buffers_);
  const auto refuse = [&](const Error& why) {
    put_back(before);
    for (size_t i = 0; i < buffers.size(); ++i) *buffers_[i] = buffers[i];
    placement_.give_up();
    refused_ = last_;
    log_warn("steps are not recorded as a graph, and slower: ", why.what());
    return work(images, labels);
  };
  generator.set_state({random.seed, random.stream, 0, &next->random});
  try {
    next->work = gpu.record([&] { next->result = in_place(next->images, next->labels, work); }, device_.index);
  } catch (const DeviceError& e) {
    return refuse(e);
  } catch (const OutOfMemory& e) {
    return refuse(e);
  }
  next->drawn = generator.state().counter;
  generator.set_state({random.seed, random.stream, random.counter + next->drawn});
  next->reached = optimizer_.reached(), next->missed = optimizer_.missed_steps();
  recorded_ = std::move(next);
  return launch(before);
}

Step::Result StepGraph::repeat(const Tensors& images, const Labels& labels, double lr) {
  Recorded& all = *recorded_;
  copy_all(all.images, images);
  copy(all.labels.y, labels.y);
  if (labels.scale.defined()) copy(all.labels.scale, labels.scale);
  const HostState before = host_state();
  optimizer_.repeat(lr, all.reached);
  all.random = before.random;
  default_generator().set_state({all.random.seed, all.random.stream, all.random.counter + all.drawn});
  return launch(before);
}

}  // namespace ringtape
