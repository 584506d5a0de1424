#include <algorithm>

#include "autograd/create.h"
#include "nn/module.h"
#include "nn/sequential.h"

namespace ringtape::nn {
namespace {

struct Line {
  std::string name, module, shape, count;
};

// Own parameters of a module, without those of its children.
struct OwnCount : Visitor {
  int64_t total = 0;
  void on_parameter(const std::string& path, Tensor& x) override {
    if (path.find('.') == std::string::npos) total += x.size();
  }
};

int64_t own_parameters(Module& module) {
  OwnCount count;
  module.visit(count);
  return count.total;
}

// The children of a Sequential are run one after the other, so that each one's output shape is known; of any other
// module only the result is.
Tensor describe(const std::string& path, Module& module, const Tensor& x, std::vector<Line>& lines) {
  if (auto* sequence = dynamic_cast<Sequential*>(&module)) {
    Tensor y = x;
    for (size_t i = 0; i < sequence->size(); ++i)
      y = describe((path.empty() ? "" : path + ".") + std::to_string(i), (*sequence)[i], y, lines);
    return y;
  }
  const Tensor y = module(x);
  lines.push_back({path, module.str(), y.shape().str(), with_commas(own_parameters(module))});
  return y;
}

}  // namespace

std::string summary(Module& module, const Shape& input) {
  struct Evaluating {
    explicit Evaluating(Module& m) : module(m), was_training(m.training()) { module.train(false); }
    ~Evaluating() { module.train(was_training); }
    Module& module;
    bool was_training;
  } evaluating(module);
  const NoGrad no_grad;
  const std::vector<Named> parameters = named_parameters(module);
  const DType dtype = parameters.empty() ? DType::f32 : parameters[0].tensor->dtype();
  const Device device = parameters.empty() ? Device{} : parameters[0].tensor->device();
  std::vector<Line> lines{{"name", "module", "output", "parameters"}};
  describe("", module, zeros(input, dtype, device), lines);

  size_t width[3] = {};
  for (const Line& l : lines) {
    width[0] = std::max(width[0], l.name.size());
    width[1] = std::max(width[1], l.module.size());
    width[2] = std::max(width[2], l.shape.size());
  }
  const auto pad = [](const std::string& s, size_t n) { return s + std::string(n - s.size() + 2, ' '); };
  std::string out;
  for (const Line& l : lines) out += pad(l.name, width[0]) + pad(l.module, width[1]) + pad(l.shape, width[2]) + l.count + "\n";
  return out + with_commas(count_parameters(module)) + " parameters, " +
         with_commas(count_parameters(module) * int64_t(size_of(dtype))) + " bytes\n";
}

}  // namespace ringtape::nn
