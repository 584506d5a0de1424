#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/tensor.h"
#include "kernels/window.h"

namespace ringtape {

// What an operation was called with besides its inputs: {"axes", {1, 2}}, {"eps", 1e-5}.
struct OpAttribute {
  const char* name;
  std::variant<int64_t, double, std::vector<int64_t>, Tensor> value;
};
using OpAttributes = std::vector<OpAttribute>;

struct TracedOp {
  const char* name;
  Tensors inputs;  // undefined: not given
  Tensor y;
  OpAttributes attributes;

  const OpAttribute* find(std::string_view attribute) const;  // null: there is none
};

// While it lives, it notes each operation that record() sees on this thread, with or without gradients. It keeps their
// tensors, so that a place in memory belongs to one of them. The newest one notes, until it ends.
class OpTrace {
 public:
  OpTrace();
  ~OpTrace();
  OpTrace(const OpTrace&) = delete;
  OpTrace& operator=(const OpTrace&) = delete;

  const std::vector<TracedOp>& ops() const { return ops_; }
  void next(OpAttributes attributes) { next_ = std::move(attributes); }
  void add(const char* name, std::span<const Tensor> inputs, const Tensor& y);

 private:
  OpTrace* before_;
  std::vector<TracedOp> ops_;
  OpAttributes next_;
};

namespace detail {
inline constinit thread_local OpTrace* op_trace = nullptr;
}

// Before an operation's record(): f() gives its attributes, and is called only for an OpTrace.
template <class F> void describe(F&& f) {
  if (detail::op_trace) [[unlikely]]
    detail::op_trace->next(f());
}

// A window as attribute: strides, padding and dilations of rows and columns.
inline OpAttribute attribute_of(const Window& w) {
  return {"window", std::vector<int64_t>{w.stride_h, w.stride_w, w.pad_h, w.pad_w, w.dilation_h, w.dilation_w}};
}

}  // namespace ringtape
