#include "autograd/trace.h"

namespace ringtape {

const OpAttribute* TracedOp::find(std::string_view attribute) const {
  for (const OpAttribute& a : attributes)
    if (attribute == a.name) return &a;
  return nullptr;
}

OpTrace::OpTrace() : before_(std::exchange(detail::op_trace, this)) {}
OpTrace::~OpTrace() { detail::op_trace = before_; }

void OpTrace::add(const char* name, std::span<const Tensor> inputs, const Tensor& y) {
  ops_.push_back({name, {inputs.begin(), inputs.end()}, y, std::exchange(next_, {})});
}

}  // namespace ringtape
