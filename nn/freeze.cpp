#include "nn/freeze.h"

#include <set>

#include "nn/batch_norm.h"

namespace ringtape::nn {

void freeze(Module& module, const std::function<bool(const std::string& name)>& which) {
  struct Freeze : Visitor {
    const std::function<bool(const std::string& name)>* which;
    std::set<std::string> names;
    std::vector<std::pair<std::string, BatchNorm*>> norms;
    void on_parameter(const std::string& path, Tensor& x) override {
      if (!(*which)(path)) return;
      x = x.detach();
      names.insert(path);
    }
    void on_module(const std::string& path, Module& m) override {
      if (auto* const norm = dynamic_cast<BatchNorm*>(&m)) norms.emplace_back(path, norm);
    }
  } all;
  all.which = &which;
  all.on_module("", module);
  module.visit(all);
  for (const auto& [path, norm] : all.norms)
    if (all.names.contains(path.empty() ? "bias" : path + ".bias") && !norm->weight.node() && !norm->bias.node())
      norm->freeze();
}

}  // namespace ringtape::nn
