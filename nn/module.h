#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "autograd/ops.h"
#include "autograd/tape.h"

namespace ringtape::nn {

class Module;
class TeacherWeights;

// Visits every parameter, buffer and child of a module with its name, which is the path: "0.weight", "fc.bias".
class Visitor {
 public:
  virtual ~Visitor() = default;
  void parameter(const std::string& name, Tensor& x) {
    frozen_ ? on_buffer(prefix_ + name, x) : x.node() ? on_parameter(prefix_ + name, x) : on_frozen(prefix_ + name, x);
  }
  void buffer(const std::string& name, Tensor& x) { on_buffer(prefix_ + name, x); }
  void tensor(const std::string& name, Tensor& x, bool trained) { trained ? parameter(name, x) : buffer(name, x); }
  void child(const std::string& name, Module& module);
  // A child that is not trained: its parameters count as buffers, which are only saved and moved.
  void frozen_child(const std::string& name, Module& module);
  void teacher(TeacherWeights& weights) { on_teacher(weights); }  // which of these buffers follow which parameters

 protected:
  virtual void on_parameter(const std::string& /*path*/, Tensor& /*leaf*/) {}
  virtual void on_frozen(const std::string& /*path*/, Tensor& /*x*/) {}  // a parameter of freeze() (nn/freeze.h)
  virtual void on_buffer(const std::string& /*path*/, Tensor& /*x*/) {}
  virtual void on_module(const std::string& /*path*/, Module&) {}  // before its children
  virtual void on_teacher(TeacherWeights&) {}

 private:
  std::string prefix_;
  bool frozen_ = false;
};

// A function with parameters. `visit` lists its content once: saving, moving, counting, optimizing and printing use it.
class Module {
 public:
  Module() = default;
  Module(const Module&) = delete;  // a copy would share parameters by accident
  Module& operator=(const Module&) = delete;
  virtual ~Module() = default;

  virtual Tensor forward(const Tensor& x) = 0;
  virtual void visit(Visitor&) {}
  virtual std::string str() const = 0;  // "Linear(784 -> 128)"

  Tensor operator()(const Tensor& x) { return seen(forward(x)); }
  bool training() const { return training_; }
  void train(bool on = true);  // this module and its children; changes the mode of Dropout and BatchNorm
  int64_t epoch() const { return epoch_; }
  void set_epoch(int64_t epoch);  // the same; completed epochs of a training, for what changes with them
  // Which work a step does with this module, apart from its children, if that depends on more than the shapes of its
  // inputs: a GPU repeats recorded steps (train/loop/step_graph.h) as long as it stays. Negative: it may always differ.
  virtual int64_t form() const { return 0; }

 protected:
  Tensor seen(Tensor y) const;  // returns y, this module's output; hook by which summary() records its shape

 private:
  bool training_ = true;
  int64_t epoch_ = 0;
};

struct Named {
  std::string name;
  Tensor* tensor;
};
std::vector<Named> named_parameters(Module& module);  // without frozen ones
std::vector<Named> named_frozen(Module& module);
std::vector<Named> all_parameters(Module& module);  // both, in the order of visit()
std::vector<Named> named_buffers(Module& module);
int64_t count_parameters(Module& module);  // frozen ones, too

// Moves parameters and buffers; parameters become new leaves.
void move_to(Module& module, Device device);
void cast_to(Module& module, DType dtype);

// A table with one line per module without children: its output shape for an input of the given shape, its parameters.
std::string summary(Module& module, const Shape& input);

}  // namespace ringtape::nn
