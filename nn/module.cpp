#include "nn/module.h"

#include <functional>
#include <map>
#include <utility>

#include "autograd/create.h"

namespace ringtape::nn {

void Visitor::child(const std::string& name, Module& module) {
  const std::string before = prefix_;
  on_module(before + name, module);
  prefix_ += name + ".";
  module.visit(*this);
  prefix_ = before;
}

void Visitor::frozen_child(const std::string& name, Module& module) {
  const bool before = std::exchange(frozen_, true);
  child(name, module);
  frozen_ = before;
}

namespace {

struct Collect : Visitor {
  std::vector<Named> parameters, frozen, all, buffers;
  void on_parameter(const std::string& path, Tensor& x) override {
    parameters.push_back({path, &x}), all.push_back({path, &x});
  }
  void on_frozen(const std::string& path, Tensor& x) override {
    frozen.push_back({path, &x}), all.push_back({path, &x});
  }
  void on_buffer(const std::string& path, Tensor& x) override { buffers.push_back({path, &x}); }
};

Collect collect(Module& module) {
  Collect found;
  module.visit(found);
  return found;
}

}  // namespace

std::vector<Named> named_parameters(Module& module) { return collect(module).parameters; }
std::vector<Named> named_frozen(Module& module) { return collect(module).frozen; }
std::vector<Named> all_parameters(Module& module) { return collect(module).all; }
std::vector<Named> named_buffers(Module& module) { return collect(module).buffers; }

int64_t count_parameters(Module& module) {
  int64_t n = 0;
  for (const Named& p : all_parameters(module)) n += p.tensor->size();
  return n;
}

void Module::train(bool on) {
  struct Set : Visitor {
    bool on;
    void on_module(const std::string&, Module& m) override { m.training_ = on; }
  } set;
  set.on = on;
  training_ = on;
  visit(set);
}

void Module::set_epoch(int64_t epoch) {
  struct Set : Visitor {
    int64_t epoch;
    void on_module(const std::string&, Module& m) override { m.epoch_ = epoch; }
  } set;
  set.epoch = epoch;
  epoch_ = epoch;
  visit(set);
}

// Replaces all parameters and frozen weights by f of them; what is one tensor under several names stays one.
static void replace_weights(Module& module, const std::function<Tensor(const Tensor&)>& f) {
  std::map<const void*, Tensor> made;  // by the node of what they replace
  for (const Named& p : named_parameters(module)) {
    Tensor& now = made[p.tensor->node().get()];
    if (!now.defined()) now = leaf(f(p.tensor->detach()));
    *p.tensor = now;
  }
  for (const Named& x : named_frozen(module)) *x.tensor = f(*x.tensor);
}

void move_to(Module& module, Device device) {
  replace_weights(module, [device](const Tensor& x) { return to(x, device); });
  for (const Named& b : named_buffers(module)) *b.tensor = to(*b.tensor, device);
}

void cast_to(Module& module, DType dtype) {
  replace_weights(module, [dtype](const Tensor& x) { return cast(x, dtype); });
  for (const Named& b : named_buffers(module))
    if (is_float(b.tensor->dtype())) *b.tensor = cast(*b.tensor, dtype);
}

}  // namespace ringtape::nn
