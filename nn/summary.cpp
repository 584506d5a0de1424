#include <algorithm>
#include <map>

#include "autograd/create.h"
#include "nn/mode_guard.h"
#include "nn/module.h"

namespace ringtape::nn {
namespace {

struct Line {
  std::string name, module, shape, count;
};

// The last output shape of each module called on this thread; null except inside summary().
thread_local std::map<const Module*, Shape>* outputs = nullptr;

struct Watch {
  std::map<const Module*, Shape> seen;
  Watch() { outputs = &seen; }
  ~Watch() { outputs = nullptr; }
};

// One line for each module without children.
struct Describe : Visitor {
  const std::map<const Module*, Shape>& seen;
  std::vector<Line>& lines;
  Describe(const std::map<const Module*, Shape>& shapes, std::vector<Line>& to) : seen(shapes), lines(to) {}

  void on_module(const std::string& path, Module& module) override {
    struct Children : Visitor {
      int64_t count = 0;
      void on_module(const std::string&, Module&) override { ++count; }
    } children;
    module.visit(children);
    if (children.count) return;
    const auto at = seen.find(&module);
    lines.push_back(
        {path, module.str(), at == seen.end() ? "" : at->second.str(), with_commas(count_parameters(module))});
  }
};

}  // namespace

Tensor Module::seen(Tensor y) const {
  if (outputs) (*outputs)[this] = y.shape();
  return y;
}

std::string summary(Module& module, const Shape& input) {
  const ModeGuard evaluating(module, false);
  const NoGrad no_grad;
  const std::vector<Named> parameters = named_parameters(module);
  const DType dtype = parameters.empty() ? DType::f32 : parameters[0].tensor->dtype();
  const Device device = parameters.empty() ? Device{} : parameters[0].tensor->device();
  std::vector<Line> lines{{"name", "module", "output", "parameters"}};
  Watch watch;
  module(zeros(input, dtype, device));
  Describe describe(watch.seen, lines);
  module.visit(describe);
  if (lines.size() == 1) describe.on_module("", module);

  size_t width[3] = {};
  for (const Line& l : lines) {
    width[0] = std::max(width[0], l.name.size());
    width[1] = std::max(width[1], l.module.size());
    width[2] = std::max(width[2], l.shape.size());
  }
  const auto pad = [](const std::string& s, size_t n) { return s + std::string(n - s.size() + 2, ' '); };
  std::string out;
  for (const Line& l : lines)
    out += pad(l.name, width[0]) + pad(l.module, width[1]) + pad(l.shape, width[2]) + l.count + "\n";
  return out + with_commas(count_parameters(module)) + " parameters, " +
         with_commas(count_parameters(module) * int64_t(size_of(dtype))) + " bytes\n";
}

}  // namespace ringtape::nn
