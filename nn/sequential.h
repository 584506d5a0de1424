#pragma once
#include "autograd/checkpoint.h"
#include "nn/module.h"

namespace ringtape::nn {

// A chain of modules, named "0", "1", ...
class Sequential : public Module {
 public:
  template <class... Modules> explicit Sequential(std::unique_ptr<Modules>... modules) {
    (add(std::move(modules)), ...);
  }

  // add<Linear>(784, 128) creates a module; returns *this, so that calls can be chained.
  template <class M, class... Args> Sequential& add(Args&&... args) {
    return add(std::make_unique<M>(std::forward<Args>(args)...));
  }
  Sequential& add(std::unique_ptr<Module> module) {
    modules_.push_back(std::move(module));
    return *this;
  }

  // Backward calls each module once more instead of keeping what it needs of it (checkpoint()): the same bytes, less
  // memory, more time.
  void set_checkpointing(bool on) { checkpointing_ = on; }

  size_t size() const { return modules_.size(); }
  Module& operator[](size_t i) { return *modules_[i]; }

  Tensor forward(const Tensor& x) override {
    Tensor y = x;
    for (const auto& m : modules_)
      y = checkpointing_ ? checkpoint([&m](const Tensors& in) { return (*m)(in[0]); }, {y}) : (*m)(y);
    return y;
  }
  void visit(Visitor& v) override {
    for (size_t i = 0; i < modules_.size(); ++i) v.child(std::to_string(i), *modules_[i]);
  }
  std::string str() const override { return concat("Sequential(", modules_.size(), " modules)"); }

 private:
  std::vector<std::unique_ptr<Module>> modules_;
  bool checkpointing_ = false;
};

}  // namespace ringtape::nn
